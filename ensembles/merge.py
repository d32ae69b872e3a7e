"""Apply a recipe to the predictions of a run."""

import polars as pl

from ensembles.rank_average import merge_mean_rank, rank_inside_graphs
from ensembles.recipe import Recipe
from solution import predictions
from solution.errors import InputError
from solution.runs import Run

PARTS = ("out_of_fold", "test")


def merge_run(run: Run, recipe: Recipe) -> None:
    """Write the recipe's ranking of both parts.

    Raises InputError where the run has predictions of none of the members.
    """
    known = [name for name in recipe.members if run.predictions(name, "test").is_file()]
    fallback = recipe.fallback
    if fallback is not None and not run.predictions(fallback, "test").is_file():
        raise InputError(
            f"{run.folder}: recipe {recipe.name} falls back on {fallback}, which this run has no "
            "predictions of. Run it too, or choose another fallback."
        )
    if not known and fallback is None:
        raise InputError(
            f"{run.folder}: recipe {recipe.name} needs predictions of {', '.join(recipe.members)}, "
            "found none. Run these experiments, or choose another recipe."
        )
    for part in PARTS:
        ranked = {
            name: rank_inside_graphs(predictions.read(run.predictions(name, part)))
            for name in [*known, *([fallback] if fallback else [])]
        }
        predictions.write(merge_members(ranked, recipe), run.ranking(recipe.name, part))


def merge_members(ranked: dict[str, pl.DataFrame], recipe: Recipe) -> pl.DataFrame:
    """Merge the members; the fallback ranks the collections that no member predicts.

    Args:
        ranked: by experiment, the result of rank_inside_graphs.
    """
    members = {name: ranked[name] for name in recipe.members if name in ranked}
    merged = predictions.RANKING_SCHEMA.to_frame()
    if members:
        merged = merge_mean_rank(members, recipe.members)
    if recipe.fallback is None:
        return merged
    rest = ranked[recipe.fallback].join(merged, on="collection", how="anti")
    return pl.concat([merged, rest])
