"""Merge the scores of one graph, given as arrays, by one of several methods.

Scores of different models, folds and seeds have different scales, and even the scores of one model
are comparable only inside a graph. So a method has two steps: the scores of each model are put on a
common scale inside the graph (and averaged over the folds and seeds of an experiment), then the
members are merged configuration by configuration.

    method           scale inside a graph                       merged by
    mean_rank        rank / configurations, ties averaged       weighted mean
    median_rank      rank / configurations, ties averaged       weighted median
    reciprocal_rank  -1 / (60 + rank), ties averaged            weighted mean
    borda            rank / configurations, ties share highest  weighted mean
    min_max          0 for the lowest score, 1 for the highest  weighted mean
    z_score          (score - mean) / standard deviation        weighted mean

A Borda count gives a point for every configuration that is beaten, none for a tie; without ties it
is the mean rank. If all scores of a graph are equal, the last two scales are 0.

A new method is one more name in `Method` and one more case in `scale`. Frames of many graphs are
merged by the same functions (ensembles.merge). This file does not use polars, because importing it
takes longer than ranking one program.

Sources: Borda, "Mémoire sur les élections au scrutin", 1784; Cormack, Clarke and Buettcher,
"Reciprocal rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

Method = Literal["mean_rank", "median_rank", "reciprocal_rank", "borda", "min_max", "z_score"]
METHODS: tuple[Method, ...] = get_args(Method)

# constant of Cormack, Clarke and Buettcher; larger values give the first ranks less weight
RECIPROCAL_OFFSET = 60


def merge_votes(
    votes: Mapping[str, Sequence[np.ndarray]], weights: Mapping[str, float], method: Method
) -> np.ndarray:
    """Return the merged scores (configs,) float32 of one graph.

    Args:
        votes: by member, the scores (configs,) float32 of each of its models, ordered by fold and
            seed.
        weights: by member, positive; only their ratios matter.
    """
    names = sorted(votes)
    scaled = np.array([average(votes[name], method) for name in names], np.float64)
    merged = combine(scaled, np.array([float(weights[name]) for name in names]), method)
    return merged.astype(np.float32)


def average(scores: Sequence[np.ndarray], method: Method) -> np.ndarray:
    """Return a member's scores (configs,) float32, scaled and averaged over its models."""
    total = np.zeros(len(scores[0]))
    for score in scores:
        total += scale(score, method)
    return (total / len(scores)).astype(np.float32)


def scale(scores: np.ndarray, method: Method) -> np.ndarray:
    """Return one model's scores (configs,) on the method's scale, float64; they must be finite."""
    score = scores.astype(np.float64)
    if method in ("mean_rank", "median_rank"):
        return rank(score) / len(score)
    if method == "reciprocal_rank":
        return -1 / (RECIPROCAL_OFFSET + rank(score))
    if method == "borda":
        return rank(score, highest=True) / len(score)
    low, high = score.min(), score.max()
    if not high > low:
        return np.zeros(len(score))
    if method == "min_max":
        return np.asarray((score - low) / (high - low))
    return np.asarray((score - score.mean()) / score.std())


def rank(scores: np.ndarray, *, highest: bool = False) -> np.ndarray:
    """Return ranks (configs,) float64; the lowest score has rank 1. Equal scores share the mean of
    their ranks, or with `highest` the highest rank."""
    # c equal scores have the ranks last - c + 1 to last, with the mean last - (c - 1) / 2.
    _, index, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts).astype(np.float64)
    return (last if highest else last - (counts - 1) / 2)[index]


def combine(votes: np.ndarray, weights: np.ndarray, method: Method) -> np.ndarray:
    """Merge the members' scores (members, configs) into scores (configs,).

    Args:
        votes: the members' scores, already on the method's scale.
        weights: (members,), not negative, with a positive sum; only their ratios matter.
    """
    shares = to_shares(weights)
    if method == "median_rank":
        return _weighted_median(votes, shares)
    # Add the members one by one: a matrix product may round equal configurations differently.
    merged = np.zeros(votes.shape[1])
    for share, vote in zip(shares, votes, strict=True):
        merged += share * vote
    return merged


def to_shares(weights: np.ndarray) -> np.ndarray:
    """Divide weights (members,) by their sum, which must be positive; no weight is negative."""
    # divide by a power of two: exact, and the sum of large weights cannot overflow
    _, exponent = np.frexp(weights.max())
    scaled = np.ldexp(weights, -exponent)
    return scaled / scaled.sum()


def _weighted_median(votes: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the weighted median (configs,) of votes (members, configs). If the shares up to one
    vote sum to exactly 1/2, it is the mean of this vote and the next."""
    # Sort each configuration's votes; the median is the vote at which the summed shares pass 1/2.
    order = np.argsort(votes, axis=0, kind="stable")
    ordered = np.take_along_axis(votes, order, axis=0)
    reached = np.cumsum(shares[order], axis=0)
    low = np.argmax(reached >= 0.5 - 1e-9, axis=0)  # tolerance for rounding of the sums
    high = np.argmax(reached > 0.5 + 1e-9, axis=0)
    columns = np.arange(votes.shape[1])
    return (ordered[low, columns] + ordered[high, columns]) / 2
