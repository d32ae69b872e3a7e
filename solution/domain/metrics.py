"""How good a ranking is: Kaggle's two scores, per graph, then their mean with its uncertainty.

And three that papers give: ordered pair accuracy, top-k slowdown, the list's likelihood.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.domain.collection import collection

# scipy.stats waits inside the functions that need it: it takes longer to import than all the rest.

TOP_K = 5


def kendall_tau(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Kendall's tau-b between scores and runtimes (configs,); 0 where either is constant.

    Source: Kendall, "The treatment of ties in ranking problems", Biometrika, 1945.
    """
    if np.ptp(scores) == 0 or np.ptp(runtimes) == 0:
        return 0.0
    from scipy import stats

    return float(stats.kendalltau(scores, runtimes).statistic)


def top_k_score(scores: np.ndarray, runtimes: np.ndarray, k: int = TOP_K) -> float:
    """2 - best runtime among the k lowest scores / best runtime of all; ties go to the first.

    1 when the best configuration is among the k; falls by the relative slowdown otherwise.
    """
    top = np.argsort(scores, kind="stable")[:k]
    return float(2 - runtimes[top].min() / runtimes.min())


def top_k_slowdown(scores: np.ndarray, runtimes: np.ndarray, k: int) -> float:
    """Best runtime among the k lowest scores / best of all - 1: what trying k of them costs."""
    return 1 - top_k_score(scores, runtimes, k)


def ordered_pair_accuracy(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """The share of the pairs with different runtimes that are ordered rightly.

    A pair with equal scores counts half, so no ranking at all has 0.5; NaN where no two runtimes
    differ. In n log n: pairs are counted by Kendall's tau-b.
    """
    _, times = np.unique(runtimes, return_counts=True)
    _, ties = np.unique(scores, return_counts=True)
    every = _count_pairs(np.array([len(scores)]))
    ordered, told_apart = (every - _count_pairs(counts) for counts in (times, ties))
    if ordered == 0:
        return float("nan")
    agreement = kendall_tau(scores, runtimes) * np.sqrt(ordered * told_apart)
    return float(0.5 + 0.5 * agreement / ordered)


def list_mle(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Negative log-likelihood of the true order under Plackett and Luce's model, per position.

    As solution.models.nets.losses.list_mle: natural logarithm; equal runtimes are in the order
    given. Source: Xia et al., "Listwise approach to learning to rank", ICML 2008.
    """
    strength = -np.asarray(scores, np.float64)[np.argsort(runtimes, kind="stable")]
    # The sum over those not yet placed runs from the slowest backwards.
    remaining = np.logaddexp.accumulate(strength[::-1])[::-1]
    return float((remaining - strength).mean())


def _count_pairs(sizes: np.ndarray) -> float:
    """How many pairs there are inside groups of these sizes."""
    return float((sizes * (sizes - 1) / 2).sum())


def score_ranking(collection_name: str, scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Kaggle's score of one graph of the collection: Kendall's tau for layout, top-5 for tile."""
    metric = kendall_tau if collection(collection_name).kind == "layout" else top_k_score
    return metric(scores, runtimes)


def score_predictions(predictions: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Score every predicted graph.

    Args:
        predictions: collection, graph, config, score; with a seed column, a graph's score is the
            mean over its seeds.
        labels: collection, graph, config, runtime.

    Returns:
        collection, graph, score; a row a graph, sorted.
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
    """A mean over graphs with its 95% bootstrap interval."""

    value: float
    low: float
    high: float
    graphs: int

    def __format__(self, spec: str) -> str:
        """Each number by `spec`: f"{mean:.3f}" is such as 0.571 (0.542 to 0.600)."""
        value, low, high = (format(number, spec) for number in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"


def bootstrap_mean(values: np.ndarray, resamples: int = 9999) -> Mean:
    """The mean of per-graph scores (graphs,) with a percentile bootstrap interval over graphs.

    The interval is NaN where there are fewer than two graphs.
    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    value = float(np.mean(values)) if len(values) else float("nan")
    if len(values) < 2:
        return Mean(value, float("nan"), float("nan"), len(values))
    from scipy import stats

    with warnings.catch_warnings():  # constant scores are a fair case here: the interval is a point
        warnings.simplefilter("ignore")
        result = stats.bootstrap(
            (values,), np.mean, n_resamples=resamples, method="percentile", rng=0, batch=1000
        )
    interval = result.confidence_interval
    return Mean(value, float(interval.low), float(interval.high), len(values))
