"""From the predictions of a run to rankings and scores, in one pass, a few graphs at a time.

An experiment is scored as a recipe by itself: its folds and seeds are averaged first.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.merge import check_mergeable, find_members, merge_files, merge_scaled
from ensembles.methods import normalise
from ensembles.recipe import Recipe, check_recipe, make_recipe
from ensembles.votes import Method
from solution.domain import predictions
from solution.domain.metrics import score_predictions
from solution.runs.folder import EXPERIMENTS, Run
from solution.system.files import checksum, remove_leftovers
from solution.system.parquet import read_by_graphs, write_batches

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


@dataclass(frozen=True, eq=False)
class RunScores:
    """The out-of-fold scores of a run."""

    table: pl.DataFrame  # of TABLE_SCHEMA: every experiment, then the recipe under its label
    seeds: pl.DataFrame  # the same: the mean over seeds of each by itself, where there are several


@dataclass(frozen=True, eq=False)
class Merged:
    """What a recipe makes of a run."""

    scores: RunScores
    orders: dict[str, np.ndarray]  # by ID, the configurations of test graphs from the fastest on


@dataclass(frozen=True, eq=False)
class _Parts:
    """Score tables of batches."""

    table: list[pl.DataFrame] = field(default_factory=list)
    seeds: list[pl.DataFrame] = field(default_factory=list)

    def join(self) -> RunScores:
        return RunScores(_join(self.table), _join(self.seeds))


def merge_run(run: Run, recipe: Recipe) -> Merged:
    """Write the recipe's ranking of both parts; return all that a submission is made of.

    Raises InputError where the recipe does not fit the run's experiments, or one that it merges is
    not finished.
    """
    check_mergeable(run, recipe)
    members, test = (find_members(run, recipe, part) for part in predictions.PARTS)
    parts, orders = _Parts(), dict[str, np.ndarray]()
    merged = {
        "out_of_fold": _score_batches(run, recipe, {**_find_scored(run), **members}, parts),
        "test": _order_batches(merge_files(test, recipe), orders),
    }
    for part, batches in merged.items():
        path = run.ranking(recipe.name, part)
        remove_leftovers(path.parent, ())
        write_batches(batches, predictions.RANKING_SCHEMA, path)
    return Merged(parts.join(), orders)


def score_run(run: Run, recipe: Recipe | None = None) -> RunScores:
    """Score every graph out of fold by every experiment of the run, and by the recipe.

    The seeds of an experiment are merged first, as the recipe merges them, so that it is compared
    with what it adds to the ensemble; a single seed scores less.

    Args:
        recipe: None for no ensemble: seeds are averaged by rank.

    Raises:
        InputError: the recipe does not fit the run, or misses what it does not allow to miss.
    """
    if recipe is not None:
        check_recipe(recipe, run.experiments())
    parts = _Parts()
    deque(_score_batches(run, recipe, _find_scored(run), parts), maxlen=0)
    return parts.join()


def _find_scored(run: Run) -> dict[str, Path]:
    """The out-of-fold predictions that are there, by experiment."""
    names = [alone(name).name for name in run.experiments()]  # none that leads out of the run
    paths = {name: run.predictions(name, "out_of_fold") for name in names}
    return {name: path for name, path in paths.items() if path.is_file()}


def _score_batches(
    run: Run, recipe: Recipe | None, paths: Mapping[str, Path], parts: _Parts
) -> Iterator[pl.DataFrame]:
    """Yield the recipe's ranking of some graphs at a time; add the scores of all to the parts."""
    labels, groups = predictions.read(run.labels), read_groups(run)
    several = {
        name for name, one in run.record()["settings"][EXPERIMENTS].items()
        if len(one.get("seeds", [])) > 1
    }  # fmt: skip
    method: Method = "mean_rank" if recipe is None else recipe.method
    for collection, frames in read_by_graphs(paths):
        own_labels = labels_of(labels, frames.values())
        scaled = {name: normalise(frame, method) for name, frame in frames.items()}
        rankings = dict(scaled)
        if recipe is not None and _says_something(collection, frames, recipe):
            rankings[recipe.label] = merge_scaled(collection, scaled, recipe)
        for name in [*paths, *(rankings.keys() - paths.keys())]:
            if name in rankings:
                scores = score_predictions(rankings[name], own_labels)
                parts.table.append(name_scores(scores, name, groups))
            if name in frames and name in several:
                scores = score_predictions(frames[name], own_labels)
                parts.seeds.append(name_scores(scores, name, groups))
        if recipe is not None and recipe.label in rankings:
            yield rankings[recipe.label]


def _order_batches(
    batches: Iterable[pl.DataFrame], orders: dict[str, np.ndarray]
) -> Iterator[pl.DataFrame]:
    """Yield the rankings; add the order of each of their graphs to the orders."""
    for batch in batches:
        orders.update(order_graphs(batch))
        yield batch


def order_graphs(ranking: pl.DataFrame) -> dict[str, np.ndarray]:
    """Return by ID the configurations from fastest to slowest; ties by their number.

    Args:
        ranking: collection, graph, config, score.
    """
    by_graph = ranking.sort("score", "config").group_by("collection", "graph").agg("config")
    return {f"{c}:{g}": own.to_numpy() for c, g, own in zip(*by_graph, strict=True)}


def _join(tables: list[pl.DataFrame]) -> pl.DataFrame:
    whole = pl.concat([pl.DataFrame(schema=TABLE_SCHEMA), *tables])
    return whole.sort("collection", "graph", maintain_order=True)


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
    parts: list[pl.DataFrame] = []
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
    return _join(parts)


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
