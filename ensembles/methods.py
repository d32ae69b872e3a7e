"""The merging methods: pure functions from keyed frames to one ranking a graph.

Scores of different models, folds and seeds share no scale, and even one model's scores are
comparable only inside a graph. So a method is two steps: every model's scores are put on a scale
inside each graph (and averaged over the folds and seeds of an experiment), then the members are
merged configuration by configuration.

    method           scale inside a graph                       merged by
    mean_rank        rank, ties averaged, over the number       weighted mean
    median_rank      the same                                   weighted median
    reciprocal_rank  -1 / (60 + rank), ties averaged            weighted mean
    borda            rank, ties share the worst, over the same  weighted mean
    min_max          0 for the lowest score, 1 for the highest  weighted mean
    z_score          deviations from the graph's mean           weighted mean

A Borda count gives a point for every configuration that is beaten, none for a tie; without ties it
is the mean rank. Scores that are all equal in a graph say nothing there: 0 on the last two scales.

Sources: Borda, "Mémoire sur les élections au scrutin", 1784; Cormack, Clarke and Buettcher,
"Reciprocal rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ensembles.alignment import check_aligned
from ensembles.votes import RECIPROCAL_OFFSET, Method, combine
from solution.domain.predictions import KEYS, RANKING_SCHEMA, REQUEST_KEYS
from solution.system.parquet import GRAPH

MODEL = ["of_graph", "fold", "seed"]  # scores are comparable only inside


def normalise(predictions: pl.DataFrame, method: Method = "mean_rank") -> pl.DataFrame:
    """One experiment on the method's scale, its folds and seeds averaged.

    Args:
        predictions: collection, graph, config, fold, seed, score; in any order.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.
    """
    # Whole numbers are ranked and grouped several times as fast as names.
    numbered = predictions.sort(KEYS).with_columns(
        pl.struct(GRAPH).rle_id().alias("of_graph"),
        pl.struct(REQUEST_KEYS).rle_id().alias("of_config"),
    )
    return (
        numbered.with_columns(_scale(method).alias("score"))
        .group_by("of_config", maintain_order=True)
        .agg(pl.col(REQUEST_KEYS).first(), pl.col("score").mean())
        .drop("of_config")
        .cast(RANKING_SCHEMA)
    )


def merge(
    members: Mapping[str, pl.DataFrame],
    weights: Mapping[str, float],
    method: Method = "mean_rank",
) -> pl.DataFrame:
    """The members' ranking by the method.

    Args:
        members: by name, the result of `normalise`; all of the same configurations.
        weights: by name, positive; only their ratios matter.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.

    Raises:
        InputError: a member lacks predictions that others have; the message says which.
    """
    check_aligned(members)
    names = sorted(members)
    votes = np.stack([members[name]["score"].cast(pl.Float64).to_numpy() for name in names])
    merged = combine(votes, np.array([float(weights[name]) for name in names]), method)
    return members[names[0]].with_columns(score=pl.Series(merged)).cast(RANKING_SCHEMA)


def _scale(method: Method) -> pl.Expr:
    """The scores on the method's scale, inside each model's scores of a graph."""
    score, size = pl.col("score").cast(pl.Float64), pl.len().over(MODEL)
    if method in ("mean_rank", "median_rank"):
        return score.rank("average").over(MODEL) / size
    if method == "reciprocal_rank":
        return -1 / (RECIPROCAL_OFFSET + score.rank("average").over(MODEL))
    if method == "borda":
        return score.rank("max").over(MODEL) / size
    low, high = score.min().over(MODEL), score.max().over(MODEL)
    if method == "min_max":
        scaled = (score - low) / (high - low)
    else:
        scaled = (score - score.mean().over(MODEL)) / score.std(ddof=0).over(MODEL)
    return pl.when(high > low).then(scaled).otherwise(0.0)
