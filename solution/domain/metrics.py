"""Score rankings by Kaggle's two metrics per graph, and average them with an interval.

Two more metrics are from papers: ordered pair accuracy and top-k slowdown.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.domain.collection import collection

# Functions import scipy.stats when they need it: it is slow to import.

TOP_K = 5
FEW = 128  # up to this many configurations, comparing all pairs is ten times as fast as sorting


def kendall_tau(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Return Kendall's tau-b of the order by scores (configs,) and runtimes (configs,).

    (C - D) / sqrt(n (n - t)) for n pairs: C concordant, D discordant, t with equal runtimes; 0 if
    either array is constant. A submission is an order without ties, so this is the mean tau-b over
    all ways to order the configurations with equal scores. The usual tau-b divides by a smaller
    number if scores are equal, and so prefers coarse scores.
    Source: Kendall, "The treatment of ties in ranking problems", Biometrika, 1945.
    """
    spread = float(np.ptp(scores)), float(np.ptp(runtimes))
    if 0.0 in spread:
        return 0.0
    if len(scores) <= FEW and np.isfinite(spread).all():
        return _tau_of_few(scores, runtimes)
    from scipy import stats

    # scipy divides by sqrt(pairs with different scores) instead of sqrt(n), so correct its result
    untied = _count_apart(scores) / _count_pairs(np.array([len(scores)]))
    return float(stats.kendalltau(scores, runtimes).statistic * np.sqrt(untied))


def _tau_of_few(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Return kendall_tau, computed by comparing all pairs of configurations."""
    above, slower = (
        (values[:, None] > values).astype(np.float32) - (values[:, None] < values)
        for values in (scores, runtimes)
    )
    agreement = np.vdot(above, slower) / 2
    pairs = _count_pairs(np.array([len(scores)])), np.count_nonzero(slower) / 2
    return float(np.clip(agreement / np.sqrt(pairs[0]) / np.sqrt(pairs[1]), -1, 1))


def top_k_score(scores: np.ndarray, runtimes: np.ndarray, k: int = TOP_K) -> float:
    """Return 2 - (best runtime among the k lowest scores) / (best runtime of all). This is 1 if the
    best configuration is among the k, otherwise 1 - the relative slowdown. Among equal scores, the
    first configurations count as the lowest."""
    top = np.argsort(scores, kind="stable")[:k]
    return float(2 - runtimes[top].min() / runtimes.min())


def top_k_slowdown(scores: np.ndarray, runtimes: np.ndarray, k: int) -> float:
    """Return (best runtime among the k lowest scores) / (best runtime of all) - 1."""
    return 1 - top_k_score(scores, runtimes, k)


def ordered_pair_accuracy(
    scores: np.ndarray, runtimes: np.ndarray, *, tie: float = 0.5, tau: float | None = None
) -> float:
    """Return the share of pairs with different runtimes that are ordered correctly.

    NaN if no two runtimes differ. It is computed from Kendall's tau, in O(n log n) time.

    Args:
        tie: the credit for a pair with equal scores. With 0.5 constant scores get 0.5; the
            published baselines use 0.
        tau: `kendall_tau` of the same arrays, if it is known.
    """
    ordered = _count_apart(runtimes)
    if ordered == 0:
        return float("nan")
    tau = kendall_tau(scores, runtimes) if tau is None else tau
    # with tau = (C - D) / sqrt(n * ordered), the share is 1/2 + (C - D) / (2 * ordered)
    share = 0.5 + 0.5 * tau * np.sqrt(_count_pairs(np.array([len(scores)])) / ordered)
    if tie != 0.5:
        share += (tie - 0.5) * (1 - _count_apart_in_both(scores, runtimes) / ordered)
    return float(share)


def _count_apart(values: np.ndarray) -> float:
    """Count the pairs of `values` (n,) that differ."""
    _, ties = np.unique(values, return_counts=True)
    return _count_pairs(np.array([len(values)])) - _count_pairs(ties)


def _count_apart_in_both(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Count the pairs that differ in both score and runtime."""
    both = np.stack([np.unique(v, return_inverse=True)[1].ravel() for v in (scores, runtimes)])
    _, ties = np.unique(both, axis=1, return_counts=True)
    tied_in_both = _count_pairs(ties)
    # inclusion-exclusion: every - tied_in_both pairs differ in score, in runtime, or in both
    every = _count_pairs(np.array([len(scores)]))
    return _count_apart(scores) + _count_apart(runtimes) - every + tied_in_both


def _count_pairs(sizes: np.ndarray) -> float:
    """Return the sum of size * (size - 1) / 2: the pairs inside groups of `sizes` (groups,)."""
    return float((sizes * (sizes - 1) / 2).sum())


def score_ranking(collection_name: str, scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Return Kaggle's score of one graph: Kendall's tau for layout, the top-5 score for tile."""
    metric = kendall_tau if collection(collection_name).kind == "layout" else top_k_score
    return metric(scores, runtimes)


def score_predictions(predictions: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Score every predicted graph.

    Args:
        predictions: collection, graph, config, score; with a seed column, a graph's score is the
            mean over its seeds.
        labels: collection, graph, config, runtime.

    Returns:
        collection, graph, score; a row per graph, sorted.
    """
    keys = ["collection", "graph"] + (["seed"] if "seed" in predictions.columns else [])
    joined = predictions.join(labels, on=["collection", "graph", "config"], how="inner")
    rows = [
        (*key, score_ranking(str(key[0]), group["score"].to_numpy(), group["runtime"].to_numpy()))
        for key, group in joined.sort("config").group_by(keys, maintain_order=True)
    ]
    schema = {**{key: predictions.schema[key] for key in keys}, "score": pl.Float64()}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return (
        frame.group_by("collection", "graph")
        .agg(pl.col("score").mean())
        .sort("collection", "graph")
    )


@dataclass(frozen=True)
class Mean:
    """A mean over graphs with its 95% interval. The bounds `low` and `high` are NaN if there are
    too few groups of related graphs to estimate them."""

    value: float
    low: float
    high: float
    graphs: int

    def __format__(self, spec: str) -> str:
        """Format each number by `spec`, such as 0.571 (0.542 to 0.600) for f"{mean:.3f}"."""
        value, low, high = (format(number, spec) for number in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"
