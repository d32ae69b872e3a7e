"""Rank averaging: the method that is used where nothing else is asked for.

Ranks need no scale: a model may be changed by any monotone function inside a graph, and one wild
score moves nothing. Ties share their average rank.
"""

from collections.abc import Mapping

import polars as pl

from ensembles.methods import merge, normalise


def rank_inside_graphs(predictions: pl.DataFrame) -> pl.DataFrame:
    """One experiment's mean rank over its folds and seeds.

    Ties share their average rank; ranks are divided by the number of configurations, so they lie in
    (0, 1] and graphs of all sizes weigh the same.

    Args:
        predictions: collection, graph, config, fold, seed, score.

    Returns:
        A frame of RANKING_SCHEMA, sorted by its keys.
    """
    return normalise(predictions, "mean_rank")


def merge_mean_rank(
    members: Mapping[str, pl.DataFrame], weights: Mapping[str, float]
) -> pl.DataFrame:
    """The weighted mean of the members' ranks, as `merge`."""
    return merge(members, weights, "mean_rank")
