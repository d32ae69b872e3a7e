"""Apply a recipe to the predictions of a run."""

import polars as pl

from ensembles.rank_average import merge_mean_rank, rank_inside_graphs
from ensembles.recipe import Recipe, check_recipe
from solution import predictions
from solution.runs import Run


def merge_run(run: Run, recipe: Recipe) -> None:
    """Write the recipe's ranking of both parts.

    Raises InputError where the recipe does not fit the run's experiments.
    """
    check_recipe(recipe, run.experiments())
    known = [name for name in recipe.members if run.predictions(name, "test").is_file()]
    fallback = recipe.fallback
    names = [*known, *([fallback] if fallback else [])]
    for part in predictions.PARTS:
        paths = {name: run.predictions(name, part) for name in names}
        frames = {name: predictions.read(path, predictions.KEYS) for name, path in paths.items()}
        ranked = {name: rank_inside_graphs(frame) for name, frame in frames.items()}
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
