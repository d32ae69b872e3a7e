"""The page's parts on the labels: the spread of runtimes, and how noise limits scores."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from solution.domain import predictions
from solution.domain.labels import warn_of_estimates
from solution.domain.metrics import score_ranking
from submissions.page.charts import Point, draw_histogram, draw_scatter
from submissions.page.evidence import Evidence, PageTable, Section, number, show_times

BINS = 36
FEW = 10  # graphs with repeats: fewer are shown as a table only
COPIES = 10  # noisy copies of a graph's labels
# The median of |a - b| of two normal numbers, in standard deviations of one.
MEDIAN_GAP = 0.954
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
LABELS = ("collection", "graph", "config", "runtime")


def describe_runtimes(evidence: Evidence) -> Section:
    """Return the section on how much slower than its fastest a graph's configurations are."""
    title = "How runtimes spread"
    labels = predictions.read(evidence.run.labels, LABELS)
    if labels.is_empty():
        return Section(
            "runtimes",
            title,
            "The run has no labels of held-out graphs. It needs at least two labelled graphs of "
            "different architectures in a collection.",
        )
    slower = labels.with_columns(
        times=pl.col("runtime") / pl.col("runtime").min().over("collection", "graph"),
        weight=1 / pl.len().over("collection", "graph"),
    )
    figures, rows, bars = [], [], []
    for collection in evidence.collections:
        own = slower.filter(pl.col("collection") == collection.name)
        times, weights = own["times"].to_numpy(), own["weight"].to_numpy()
        found = _weighted_quantiles(times, weights)
        top = max(float(np.quantile(times, 0.999)), 1.01)
        edges = np.geomspace(1, top, BINS + 1)
        shares = np.histogram(np.minimum(times, top), edges, weights=weights)[0] / weights.sum()
        figures.append(draw_histogram(collection.name, edges.tolist(), shares.tolist(), found[2]))
        bars += [
            [collection.name, f"{left:.3f}", f"{right:.3f}", f"{share:.2%}"]
            for left, right, share in zip(edges[:-1], edges[1:], shares, strict=True)
        ]
        graphs = own["graph"].n_unique()
        shown = [show_times(value) for value in found]
        rows.append([collection.name, f"{graphs:,}", f"{len(own):,}", *shown])
    columns = ["Collection", "Graphs", "Configs", *(f"{q:.0%}" for q in QUANTILES[:-1]), "slowest"]
    return Section(
        "runtimes",
        title,
        "How many times as slow as its graph’s fastest a configuration is. Every graph weighs the "
        "same, however many configurations it has; only those that are predicted out of fold "
        f"count. {warn_of_estimates(evidence.run.label_sources())}".rstrip(),
        figures,
        [
            PageTable("Quantiles of the slowdown", columns, rows),
            PageTable("Every bar", ["Collection", "From", "To", "Share"], bars, grouped=True),
        ],
        "The axis is logarithmic; a bar’s height is the share of configurations. The slowest "
        "one in a thousand are counted in the last bar.",
    )


def describe_ceiling(evidence: Evidence) -> Section:
    """Return the section on the score that a perfect ranker could reach on labels this noisy."""
    title, anchor = "The ceiling that label noise sets", "ceiling"
    found = estimate_ceilings(evidence)
    if found.is_empty():
        return Section(
            anchor,
            title,
            "Not known for this run, and not guessed: the noise is read from configurations that "
            "are identical and were timed more than once, and the record of the run’s graphs "
            "knows none. Run again on data with duplicated configurations, as "
            "layout:xla:default has them.",
        )
    figures, rows = [], []
    for collection in evidence.collections:
        own = found.filter(pl.col("collection") == collection.name)
        if own.is_empty():
            continue
        points = [
            Point(row["graph"], row["ceiling"], row["score"]) for row in own.iter_rows(named=True)
        ]
        axes = ("estimated ceiling", f"ensemble’s {collection.metric}")
        figures.append(draw_scatter(collection.name, points, axes, shared=True))
        total = len(evidence.scores_of(collection.name, evidence.ensemble))
        means = [float(own[name].to_numpy().mean()) for name in ("ceiling", "repeat", "score")]
        noise = f"{float(np.median(own['noise'])):.1%}"
        rows.append([collection.name, f"{len(own)} of {total}", noise, *map(number, means)])
    missing = [c.name for c in evidence.collections if c.name not in set(found["collection"])]
    columns = ["Collection", "Graphs", "Noise", "Ceiling", "Second timing", "Ensemble"]
    return Section(
        anchor,
        title,
        "An estimate. Identical configurations have different labels; their median gap is a "
        "graph’s noise. It is read as log-normal with two timings each, and noise of that size "
        f"is added to the labels {COPIES} times.",
        figures if len(found) >= FEW else [],
        [
            PageTable("Estimated ceilings, means over the graphs with repeats", columns, rows),
            _tabulate_ceilings(found),
        ],
        "A dot is a graph; on the dashed line the ensemble would be at its ceiling.",
        notes=[
            "Ceiling: the score of the labels as they are against a noisy copy, what a perfect "
            "ranker would get. Second timing: one noisy copy against another. The labels are "
            "noisy already, which flatters both; more than two timings a configuration make the "
            "noise look larger than it is.",
            *([f"No repeats, so no estimate: {', '.join(missing)}."] if missing else []),
        ],
    )


def _tabulate_ceilings(found: pl.DataFrame) -> PageTable:
    rows = [
        [collection, graph, f"{noise:.1%}", *map(number, scores)]
        for collection, graph, noise, *scores in found.sort("collection", "graph").iter_rows()
    ]
    columns = ["Collection", "Graph", "Noise", "Ceiling", "Second timing", "Ensemble"]
    return PageTable("Every graph with repeats", columns, rows, texts=2, grouped=True)


def estimate_ceilings(evidence: Evidence) -> pl.DataFrame:
    """Return collection, graph, noise, ceiling, repeat, score for graphs whose noise is known."""
    schema = ["collection", "graph", "noise", "ceiling", "repeat", "score"]
    kinds = [pl.String(), pl.String(), *[pl.Float64()] * 4]
    graphs = predictions.read(evidence.run.graphs)
    rows: list[tuple[str | float, ...]] = []
    if "noise" in graphs.columns:
        known = graphs.filter(pl.col("noise") > 0).select("collection", "graph", "noise")
        own = evidence.scores.filter(pl.col("member") == evidence.ensemble).join(
            known, on=["collection", "graph"]
        )
        labels = predictions.read(evidence.run.labels, LABELS).partition_by(
            ["collection", "graph"], as_dict=True
        )
        for name, graph, noise, score in own.select(
            "collection", "graph", "noise", "score"
        ).iter_rows():
            runtimes = labels[name, graph].sort("config")["runtime"].to_numpy()
            rows.append((name, graph, noise, *simulate(name, runtimes, noise), score))
    return pl.DataFrame(rows, schema=dict(zip(schema, kinds, strict=True)), orient="row")


def simulate(collection: str, runtimes: np.ndarray, noise: float) -> tuple[float, float]:
    """Return mean scores of (labels against a noisy copy, one noisy copy against another).

    Args:
        runtimes: (configs,) the labels.
        noise: median of slowest over fastest among identical configurations, less 1.
    """
    deviation = math.log1p(noise) / MEDIAN_GAP
    generator = np.random.default_rng(0)
    copies = runtimes * np.exp(deviation * generator.standard_normal((COPIES, len(runtimes))))
    against = [score_ranking(collection, runtimes, copy) for copy in copies]
    between = [
        score_ranking(collection, one, other)
        for one, other in zip(copies, copies[1:], strict=False)
    ]
    return float(np.mean(against)), float(np.mean(between))


def _weighted_quantiles(values: np.ndarray, weights: np.ndarray) -> Sequence[float]:
    order = np.argsort(values)
    passed = np.cumsum(weights[order]) / weights.sum()
    places = np.minimum(np.searchsorted(passed, np.array(QUANTILES) - 1e-12), len(values) - 1)
    return [float(value) for value in values[order][places]]
