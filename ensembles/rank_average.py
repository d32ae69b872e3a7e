"""Rank averaging: pure functions from keyed frames to one ranking a graph.

Scores of different models, folds and seeds share no scale, and even one model's scores are
comparable only inside a graph. So every model's scores become ranks inside each graph first.
"""

from collections.abc import Mapping

import polars as pl

from solution.errors import InputError
from solution.predictions import KEYS, RANKING_SCHEMA

GRAPH = ["collection", "graph"]
CONFIG = ["collection", "graph", "config"]


def rank_inside_graphs(predictions: pl.DataFrame) -> pl.DataFrame:
    """One experiment's mean rank over its folds and seeds.

    Ties share their average rank; ranks are divided by the number of configurations, so they lie in
    (0, 1] and graphs of all sizes weigh the same.

    Args:
        predictions: collection, graph, config, fold, seed, score.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.
    """
    # Whole numbers are ranked and grouped several times as fast as names.
    numbered = predictions.sort(KEYS).with_columns(
        pl.struct(GRAPH).rle_id().alias("of_graph"), pl.struct(CONFIG).rle_id().alias("of_config")
    )
    model = ["of_graph", "fold", "seed"]
    rank = pl.col("score").rank("average").over(model) / pl.len().over(model)
    return (
        numbered.with_columns(rank.alias("score"))
        .group_by("of_config", maintain_order=True)
        .agg(pl.col(CONFIG).first(), pl.col("score").mean())
        .drop("of_config")
        .cast(RANKING_SCHEMA)
    )


def merge_mean_rank(
    members: Mapping[str, pl.DataFrame], weights: Mapping[str, float]
) -> pl.DataFrame:
    """The weighted mean of the members' ranks.

    Args:
        members: by name, the result of rank_inside_graphs; all of the same configurations.
        weights: by name, positive; only their ratios matter.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.

    Raises:
        InputError: a member lacks predictions that others have; the message says which.
    """
    _check_aligned(members)
    names = sorted(members)
    total = sum(weights[name] for name in names)
    mean = sum(members[name]["score"].cast(pl.Float64) * (weights[name] / total) for name in names)
    return members[names[0]].with_columns(score=mean).cast(RANKING_SCHEMA)


def _check_aligned(members: Mapping[str, pl.DataFrame]) -> None:
    keys = {name: frame.select(CONFIG) for name, frame in members.items()}
    first = next(iter(keys.values()))
    if all(other.equals(first) for other in keys.values()):
        return
    wanted = pl.concat(keys.values()).unique()
    for name, own in sorted(keys.items()):
        missing = wanted.join(own, on=CONFIG, how="anti").sort(CONFIG)
        if len(missing):
            lacks = missing.row(0, named=True)
            raise InputError(
                f"{name} has no prediction for {lacks['collection']}:{lacks['graph']}, "
                f"configuration {lacks['config']}, and {len(missing) - 1} more that other members "
                "have. Make its predictions again, or take it out of the recipe."
            )
