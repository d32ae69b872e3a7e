"""Check that a recipe fits a run, and merge predictions by it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from ensembles.methods import merge, normalise, split_by_presence
from ensembles.recipe import Recipe, check_members, check_place, check_recipe
from solution.domain.predictions import RANKING_SCHEMA, REQUEST_KEYS
from solution.runs.folder import EXPERIMENTS, QUICK_LOOK, Run
from solution.system.errors import InputError
from solution.system.parquet import GRAPH, read_by_graphs
from solution.system.wording import count


def check_mergeable(run: Run, recipe: Recipe) -> None:
    """Raise InputError unless the recipe fits the run and all that it merges is predicted."""
    experiments = run.experiments()
    check_recipe(recipe, experiments)
    check_place(recipe, experiments)
    if (run.folder / recipe.name).is_file():
        raise InputError(
            f"recipe {recipe.name} has the name of a file of the run {run.folder}. Give the "
            "recipe's file another name."
        )
    check_finished(run, recipe)


def check_finished(run: Run, recipe: Recipe) -> None:
    """InputError where the run has no predictions yet of what it was begun with and is merged."""
    missing, wanted = find_missing(run, recipe), _list_wanted(recipe)
    if missing or not _list_predicted(run, wanted):
        raise InputError(
            f"{run.folder}: is not finished: {count(run.count_models(), 'model')} so far, and no "
            f"predictions of {' or '.join(missing or wanted)}. The `fastslow run` that began it "
            "goes on with it, unless another process is at work in it; a recipe that merges only "
            "the others does without."
        )


def find_missing(run: Run, recipe: Recipe) -> list[str]:
    """What of the recipe the run was begun with, and has no predictions of yet."""
    begun = [name for name in _list_wanted(recipe) if name in run.experiments()]
    there = _list_predicted(run, begun)
    absent = [name for name in begun if name not in there]
    return [name for name in absent if name == recipe.fallback or _can_be_trained(name, run)]


def describe_caveats(run: Run, recipe: Recipe) -> list[str]:
    """What people should know of the recipe's scores in the run before they believe them."""
    sentences = []
    if run.is_quick:
        sentences.append(
            f"This is a quick look, by `--limit`: {QUICK_LOOK}. Its scores mean little."
        )
    if missing := find_missing(run, recipe):
        sentences.append(
            f"The run is not finished: nothing of {' or '.join(missing)} stands in these numbers "
            "yet."
        )
    return sentences


def _list_wanted(recipe: Recipe) -> list[str]:
    return recipe.and_fallback(recipe.names())


def _list_predicted(run: Run, names: Sequence[str]) -> list[str]:
    """Those of the run's own experiments that have predictions."""
    begun = run.experiments()
    return [n for n in names if n in begun and run.predictions(n, "test").is_file()]


def _can_be_trained(experiment: str, run: Run) -> bool:
    """Whether any collection that it ranks has labels: of another nothing is to come."""
    ranked = run.record()["settings"][EXPERIMENTS][experiment].get("collections")
    if ranked is None or not run.labels.is_file():
        return True
    labelled = pl.scan_parquet(run.labels, glob=False).select(pl.col("collection").unique())
    return bool(set(ranked) & set(labelled.collect()["collection"]))


def find_members(run: Run, recipe: Recipe, part: str) -> dict[str, Path]:
    """The prediction files of the recipe's members that the run has, and of its fallback.

    Only experiments of the run's record count: what else lies in its folder has other folds.
    """
    known = _list_predicted(run, recipe.names())
    names = recipe.and_fallback(known)
    return {name: run.predictions(name, part) for name in names}


def merge_files(paths: Mapping[str, Path], recipe: Recipe) -> Iterator[pl.DataFrame]:
    """Merge prediction files, by experiment, into frames of RANKING_SCHEMA, sorted by their keys.

    Memory does not grow with the files.
    """
    for collection, frames in read_by_graphs(paths):
        yield merge_collection(collection, frames, recipe)


def merge_collection(
    collection: str, frames: Mapping[str, pl.DataFrame], recipe: Recipe
) -> pl.DataFrame:
    """Merge the predictions of graphs of one collection.

    Args:
        frames: by experiment that predicts the collection; its members are merged, and where there
            is none, the fallback ranks alone.
    """
    wanted = recipe.and_fallback(recipe.weights(collection))
    scaled = {n: normalise(frames[n], recipe.method) for n in wanted if n in frames}
    return merge_scaled(collection, scaled, recipe)


def merge_scaled(
    collection: str, scaled: Mapping[str, pl.DataFrame], recipe: Recipe
) -> pl.DataFrame:
    """Merge what `normalise` made of the predictions of graphs of one collection.

    Raises:
        InputError: a member lacks the collection that the recipe weighs it in, or some of its
            graphs, and the recipe does not allow it.
    """
    weights = recipe.weights(collection)
    members = {name: scaled[name] for name in weights if name in scaled}
    check_members(recipe, collection, members)
    fallback = scaled.get(recipe.fallback or "")
    if not members:
        if fallback is None:
            raise InputError(
                f"recipe {recipe.name}: no member predicts {collection}. Give it a fallback."
            )
        return fallback
    if "graphs" not in recipe.allow_missing:
        return merge(members, weights, recipe.method)
    parts = [merge(part, weights, recipe.method) for part in split_by_presence(members)]
    merged = pl.concat([pl.DataFrame(schema=RANKING_SCHEMA), *parts])
    if fallback is not None:
        merged = pl.concat([merged, fallback.join(merged, on=GRAPH, how="anti")])
    return merged.sort(REQUEST_KEYS)
