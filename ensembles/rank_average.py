"""Rank averaging: pure functions from keyed frames to one ranking a graph.

Scores of different models, folds and seeds share no scale, and even one model's scores are
comparable only inside a graph. So every model's scores become ranks inside each graph first.
"""

from collections.abc import Mapping

import polars as pl

from solution.errors import InputError
from solution.predictions import RANKING_SCHEMA

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
    model = [*GRAPH, "fold", "seed"]
    rank = pl.col("score").rank("average").over(model) / pl.len().over(model)
    return (
        predictions.with_columns(rank.alias("score"))
        .group_by(CONFIG)
        .agg(pl.col("score").mean())
        .cast(RANKING_SCHEMA)
        .sort(CONFIG)
    )


def merge_mean_rank(
    members: Mapping[str, pl.DataFrame], weights: Mapping[str, float]
) -> pl.DataFrame:
    """The weighted mean of the members' ranks.

    In a collection that a member predicts at all, it must predict every graph and configuration
    that another member predicts.

    Args:
        members: by name, the result of rank_inside_graphs.
        weights: by name, positive; only their ratios matter.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.

    Raises:
        InputError: a member lacks predictions that others have; the message says which.
    """
    stacked = pl.concat(
        frame.with_columns(
            pl.lit(name).alias("member"), pl.lit(float(weights[name])).alias("weight")
        )
        for name, frame in members.items()
    )
    _check_aligned(stacked)
    mean = (pl.col("score") * pl.col("weight")).sum() / pl.col("weight").sum()
    return (
        stacked.sort(*CONFIG, "member")
        .group_by(CONFIG, maintain_order=True)
        .agg(mean.alias("score"))
        .cast(RANKING_SCHEMA)
    )


def _check_aligned(stacked: pl.DataFrame) -> None:
    present = stacked.select("collection", "member").unique()
    wanted = stacked.select(CONFIG).unique().join(present, on="collection")
    missing = wanted.join(stacked, on=[*CONFIG, "member"], how="anti")
    if len(missing):
        first = missing.sort([*CONFIG, "member"]).row(0, named=True)
        raise InputError(
            f"{first['member']} has no prediction for {first['collection']}:{first['graph']}, "
            f"configuration {first['config']}, and {len(missing) - 1} more that other members "
            "have. Make its predictions again, or take it out of the recipe."
        )
