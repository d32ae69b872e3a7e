"""Out-of-fold scores of recipes, a few graphs at a time; an experiment is a recipe by itself."""

from collections.abc import Iterable, Mapping

import polars as pl

from ensembles.merge import merge_scaled
from ensembles.methods import normalise
from ensembles.recipe import Recipe, make_recipe
from ensembles.votes import Method
from solution.domain import predictions
from solution.domain.metrics import score_predictions
from solution.runs.folder import Run
from solution.system.files import checksum
from solution.system.parquet import read_by_graphs

TABLE_SCHEMA = pl.Schema(
    {
        "collection": pl.String(),
        "graph": pl.String(),
        "group": pl.String(),  # as the run's folds were drawn: what statistics draw again
        "member": pl.String(),
        "score": pl.Float64(),
    }
)


def alone(experiment: str, method: Method = "mean_rank") -> Recipe:
    """The recipe that is an experiment by itself, its folds and seeds averaged by the method.

    Raises InputError where the experiment has a name that no recipe can have.
    """
    members = {"members": {experiment: 1.0}, "allow_missing": {"members"}}
    return make_recipe(
        f"experiment {experiment!r}", {"name": experiment, "method": method, **members}
    )


def score_recipes(run: Run, recipes: Mapping[str, Recipe]) -> pl.DataFrame:
    """Score every graph out of fold by every recipe.

    Args:
        recipes: by the name that the table gives them. A recipe that has no member in a collection
            is scored by its fallback there, or has no rows.

    Returns:
        A frame of TABLE_SCHEMA, sorted by collection and graph, then in the order of `recipes`.

    Raises:
        InputError: a member lacks graphs, and the recipe does not allow it.
    """
    labels, groups = predictions.read(run.labels), read_groups(run)
    used = {name for one in recipes.values() for name in one.and_fallback(one.names())}
    present = sorted(used & set(run.experiments()))
    paths = {name: run.predictions(name, "out_of_fold") for name in present}
    parts = [pl.DataFrame(schema=TABLE_SCHEMA)]
    for collection, frames in read_by_graphs({n: p for n, p in paths.items() if p.is_file()}):
        own_labels = labels_of(labels, frames.values())
        scaled: dict[Method, dict[str, pl.DataFrame]] = {}
        for label, recipe in recipes.items():
            if recipe.method not in scaled:
                own = {name: normalise(frame, recipe.method) for name, frame in frames.items()}
                scaled[recipe.method] = own
            if not _says_something(collection, frames, recipe):
                continue
            merged = merge_scaled(collection, scaled[recipe.method], recipe)
            parts.append(name_scores(score_predictions(merged, own_labels), label, groups))
    return pl.concat(parts).sort("collection", "graph", maintain_order=True)


def describe_fit(run: Run, recipe: Recipe) -> str:
    """Why the recipe's scores in this run are too high; empty where it was not fitted on it."""
    if recipe.fitted_on is None or recipe.fitted_on != checksum(run.labels):
        return ""
    said = "" if recipe.nested is None else f"; on others the search reaches {recipe.nested:.4f}"
    return f"Recipe {recipe.name} was fitted on these very graphs, which flatters it{said}."


def read_groups(run: Run) -> pl.DataFrame:
    """collection, graph, group of every labelled graph: a structure, or with folds by graph itself.

    A graph of one group is never on both sides of a fit, nor drawn without the others of it.
    """
    graphs = predictions.read(run.graphs, ["collection", "graph", "group", "labelled"])
    return graphs.filter("labelled").select("collection", "graph", "group")


def name_scores(scores: pl.DataFrame, member: str, groups: pl.DataFrame) -> pl.DataFrame:
    """Scores (collection, graph, score) of a member as a frame of TABLE_SCHEMA."""
    joined = scores.join(groups, on=["collection", "graph"], maintain_order="left")
    named = joined.with_columns(member=pl.lit(member))
    return named.select(TABLE_SCHEMA.names()).cast(TABLE_SCHEMA)


def _says_something(collection: str, frames: Mapping[str, pl.DataFrame], recipe: Recipe) -> bool:
    return any(n in frames for n in recipe.and_fallback(recipe.weights(collection)))


def labels_of(labels: pl.DataFrame, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The labels of the graphs of these frames: joins with all of them would take long."""
    graphs = pl.concat([frame.select("collection", "graph") for frame in frames]).unique()
    return labels.join(graphs, on=["collection", "graph"], how="semi")
