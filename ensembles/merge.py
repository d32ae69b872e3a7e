"""Apply a recipe to the predictions of a run, a few graphs at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from ensembles.rank_average import merge_mean_rank, rank_inside_graphs
from ensembles.recipe import Recipe, check_recipe
from solution import predictions
from solution.runs import Run
from solution.streaming import read_by_graphs, write_batches


def merge_run(run: Run, recipe: Recipe) -> None:
    """Write the recipe's ranking of both parts.

    Raises InputError where the recipe does not fit the run's experiments.
    """
    check_recipe(recipe, run.experiments())
    known = [name for name in recipe.members if run.predictions(name, "test").is_file()]
    names = [*known, *([recipe.fallback] if recipe.fallback else [])]
    for part in predictions.PARTS:
        paths = {name: run.predictions(name, part) for name in names}
        merged = merge_files(paths, recipe)
        write_batches(merged, predictions.RANKING_SCHEMA, run.ranking(recipe.name, part))


def merge_files(paths: Mapping[str, Path], recipe: Recipe) -> Iterator[pl.DataFrame]:
    """Merge prediction files, by experiment, into frames of RANKING_SCHEMA, sorted by their keys.

    Memory does not grow with the files.
    """
    for _, frames in read_by_graphs(paths):
        yield merge_collection(frames, recipe)


def merge_collection(frames: Mapping[str, pl.DataFrame], recipe: Recipe) -> pl.DataFrame:
    """Merge the predictions of graphs of one collection.

    Args:
        frames: by experiment that predicts the collection; its members are merged, and where there
            is none, the fallback ranks alone.
    """
    members = {n: rank_inside_graphs(frames[n]) for n in recipe.members if n in frames}
    if members:
        return merge_mean_rank(members, recipe.members)
    return rank_inside_graphs(frames[recipe.fallback or ""])
