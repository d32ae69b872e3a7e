"""Build the page's sections on the labels: the spread of runtimes, and how noise limits scores."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from solution.domain import predictions
from solution.domain.graph import warn_of_estimates
from solution.domain.metrics import score_ranking
from solution.system.parquet import GRAPH
from submissions.page.charts import Point, draw_histogram, draw_scatter
from submissions.page.evidence import Evidence, PageTable, Section, number, show_times

BINS = 36
# minimum number of graphs with repeated labels for a figure; below it there is only a table
FEW = 10
COPIES = 10  # number of noisy copies of a graph's labels
MEDIAN_GAP = 0.954  # median of |a - b| for independent standard normal a and b
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
LABELS = ("collection", "graph", "config", "runtime")


def describe_runtimes(evidence: Evidence) -> Section:
    """Return the section on how much slower a graph's configurations are than its fastest one."""
    heading = "runtimes", "How runtimes spread"
    labels = predictions.read(evidence.run.labels, LABELS)
    if labels.is_empty():
        return Section(
            *heading,
            "The run has no labels of held-out graphs. It needs at least two labelled graphs of "
            "different architectures in a collection.",
        )
    slower = labels.with_columns(
        times=pl.col("runtime") / pl.col("runtime").min().over("collection", "graph"),
        weight=1 / pl.len().over("collection", "graph"),
    )
    figures, rows, bars = [], [], []
    for collection in evidence.collections:
        rows_of = slower.filter(pl.col("collection") == collection.name)
        times, weights = rows_of["times"].to_numpy(), rows_of["weight"].to_numpy()
        quantiles = _weighted_quantiles(times, weights)
        top = max(float(np.quantile(times, 0.999)), 1.01)
        edges = np.geomspace(1, top, BINS + 1)
        shares = np.histogram(np.minimum(times, top), edges, weights=weights)[0] / weights.sum()
        figures.append(
            draw_histogram(collection.name, edges.tolist(), shares.tolist(), quantiles[2])
        )
        bars += [
            [collection.name, f"{left:.3f}", f"{right:.3f}", f"{share:.2%}"]
            for left, right, share in zip(edges[:-1], edges[1:], shares, strict=True)
        ]
        graphs = rows_of["graph"].n_unique()
        shown = [show_times(value) for value in quantiles]
        rows.append([collection.name, f"{graphs:,}", f"{len(rows_of):,}", *shown])
    columns = ["Collection", "Graphs", "Configs", *(f"{q:.0%}" for q in QUANTILES[:-1]), "slowest"]
    return Section(
        *heading,
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
    heading = "ceiling", "The ceiling that label noise sets"
    found = estimate_ceilings(evidence)
    if found.is_empty():
        return Section(
            *heading,
            "Unknown for this run: the noise is estimated from identical configurations that were "
            "timed more than once, and the run’s graphs have none. Run again on data with "
            "duplicated configurations, such as layout:xla:default.",
        )
    figures, rows = [], []
    for collection in evidence.collections:
        graphs = found.filter(pl.col("collection") == collection.name)
        if graphs.is_empty():
            continue
        points = [
            Point(row["graph"], row["ceiling"], row["score"])
            for row in graphs.iter_rows(named=True)
        ]
        axes = ("estimated ceiling", f"ensemble’s {collection.metric}")
        figures.append(draw_scatter(collection.name, points, axes, shared=True))
        total = len(evidence.scores_of(collection.name, evidence.ensemble))
        means = [float(graphs[name].to_numpy().mean()) for name in ("ceiling", "repeat", "score")]
        noise = f"{float(np.median(graphs['noise'])):.1%}"
        rows.append([collection.name, f"{len(graphs)} of {total}", noise, *map(number, means)])
    missing = [c.name for c in evidence.collections if c.name not in set(found["collection"])]
    columns = ["Collection", "Graphs", "Noise", "Ceiling", "Second timing", "Ensemble"]
    return Section(
        *heading,
        "An estimate. Identical configurations have different labels; their median gap is a "
        "graph’s noise. It is modelled as log-normal with two timings each, and noise of this "
        f"size is added to the labels {COPIES} times.",
        figures if len(found) >= FEW else [],
        [
            PageTable("Estimated ceilings, means over the graphs with repeats", columns, rows),
            _tabulate_ceilings(found),
        ],
        "A dot is a graph; on the dashed line the ensemble would be at its ceiling.",
        notes=[
            "Ceiling: the score of the labels against a noisy copy of them, which a perfect ranker "
            "would get. Second timing: one noisy copy against another. The labels are noisy "
            "already, so both are too high; with more than two timings of a configuration, the "
            "noise is overestimated.",
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
    """Return a table with a row for each graph whose label noise is known. The columns are
    collection, graph, noise, ceiling, repeat, score. `simulate` estimates ceiling and repeat, the
    scores of a perfect ranker and of a second measurement; score is the ensemble's."""
    schema = ["collection", "graph", "noise", "ceiling", "repeat", "score"]
    kinds = [pl.String(), pl.String(), *[pl.Float64()] * 4]
    graphs = predictions.read(evidence.run.graphs)
    rows: list[tuple[str | float, ...]] = []
    if "noise" in graphs.columns:
        known = graphs.filter(pl.col("noise") > 0).select("collection", "graph", "noise")
        scores = evidence.scores.filter(pl.col("member") == evidence.ensemble)
        noisy = scores.join(known, on=GRAPH).select(*GRAPH, "noise", "score")
        labels = predictions.read(evidence.run.labels, LABELS).partition_by(GRAPH, as_dict=True)
        for name, graph, noise, score in noisy.iter_rows():
            runtimes = labels[name, graph].sort("config")["runtime"].to_numpy()
            rows.append((name, graph, noise, *simulate(name, runtimes, noise), score))
    return pl.DataFrame(rows, schema=dict(zip(schema, kinds, strict=True)), orient="row")


def simulate(collection: str, runtimes: np.ndarray, noise: float) -> tuple[float, float]:
    """Return two mean scores: labels compared with noisy copies, and noisy copies with each other.

    Args:
        runtimes: (configs,) the labels.
        noise: median of slowest / fastest - 1 among identical configurations.
    """
    # log1p(noise), the median log ratio of two timings, is MEDIAN_GAP standard deviations
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
    # A quantile q is the first sorted value at which the summed weights reach the share q.
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    rows = np.minimum(np.searchsorted(reached, np.array(QUANTILES) - 1e-12), len(values) - 1)
    return [float(value) for value in values[order][rows]]
