"""Draw explanations: contributions, importances, configurations in principal components."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from solution.analysis.explanation import Explanation
from solution.analysis.graph_picture import show_name
from solution.analysis.measures import principal_components, separability
from solution.domain.graph import Graph
from solution.features.column import Feature
from solution.models.sampling import choose_rows
from solution.system.pictures import save_figure
from solution.system.wording import count

if TYPE_CHECKING:  # for annotations only, because this import needs torch
    from solution.analysis.state_costs import Costs

SHOWN = 15  # maximum number of bars in a panel
MAX_POINTS = 20_000  # approximate maximum number of points in the panel of all graphs
# returns the feature table (distinct configs, columns) of a graph's distinct configurations
RowsOf = Callable[[Graph], np.ndarray]
SLOWER, FASTER = "#c44e52", "#4c72b0"


def draw_contributions(explanation: Explanation, path: Path) -> None:
    """Write a PNG with two bar charts: the largest contributions of columns to the difference of
    scores, and the columns that the model uses most."""
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    axes = figure.subplots(1, 2)
    order = explanation.order[:SHOWN][::-1]
    values = explanation.contributions[order]
    colours = np.where(values > 0, SLOWER, FASTER)
    axes[0].barh([explanation.features[column].name for column in order], values, color=colours)
    axes[0].axvline(0, color="black", linewidth=0.8)
    axes[0].set_title(
        f"{show_name(explanation.graph)}: configuration {explanation.slow} over {explanation.fast}"
    )
    axes[0].set_xlabel("contribution to the difference of scores (red: slower, blue: faster)")
    _draw_importance(axes[1], explanation.features, explanation.importance)
    save_figure(figure, path)


def draw_costs(costs: "Costs", path: Path) -> None:
    """Write a PNG of the costs in which two configurations differ: a bar per tensor."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    axes = figure.subplots()
    names, values = costs.names[:SHOWN][::-1], costs.added[:SHOWN][::-1]
    bars = np.arange(len(names))
    axes.barh(bars, values, color=np.where(values > 0, SLOWER, FASTER))
    axes.set_yticks(bars, names)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(f"{show_name(costs.graph)}: configuration {costs.slow} over {costs.fast}")
    axes.set_xlabel("cost that adds to the difference of the scores (red: slower, blue: faster)")
    save_figure(figure, path)


def _draw_importance(axes: Axes, features: Sequence[Feature], importance: np.ndarray) -> None:
    order = np.argsort(-importance, kind="stable")[:SHOWN][::-1]
    axes.barh([features[column].name for column in order], 100 * importance[order], color="#8c8c8c")
    axes.set_title("What the model uses most, over all graphs")
    axes.set_xlabel("share of the trees' gain, or of the linear weights (%)")


def draw_components(
    graph: Graph, others: Sequence[Graph], path: Path, marked: Sequence[int], rows_of: RowsOf
) -> None:
    """Write a PNG with three panels of configurations in principal components.

    The panels show this graph in two components, this graph in three, and all of `others`, which
    are labelled, in two. Components are computed from the columns that the ranker learns from
    (`rows_of`). In the panels of this graph the colour is log2 of the runtime over the fastest, or
    grey if there are no runtimes. In the panel of all graphs it is the rank within each graph, so
    that graphs can be compared. The configurations `marked` get a ring and their number. Titles
    state how well a plane in three components separates fast from slow configurations
    (solution.analysis.measures.separability).
    """
    figure = Figure(figsize=(19, 5.4), layout="constrained")
    axes = [figure.add_subplot(1, 3, panel) for panel in (1, 3)]
    rows = rows_of(graph)
    colours, label = None, ""
    if graph.runtimes is not None:
        runtimes = graph.distinct.mean(graph.runtimes)
        colours, label = np.log2(runtimes / runtimes.min()), "log2 runtime over the fastest"
    points = _scatter(axes[0], rows, colours, label)
    for config in marked:
        point = points[graph.distinct.inverse[config]]
        axes[0].plot(*point, "o", ms=13, mfc="none", mec=SLOWER, mew=1.6)
        axes[0].annotate(str(config), point, xytext=(9, 6), textcoords="offset points")
    axes[0].set_title(f"{len(rows):,} configurations of {show_name(graph)}")
    _scatter_in_three(figure.add_subplot(1, 3, 2, projection="3d"), rows, colours)
    tables, ranks = _sample(others, rows_of)
    if len(tables):
        _scatter(axes[1], tables, ranks, "rank inside the graph (0 fastest, 1 slowest)")
    said = _say_separability(tables, ranks) if len(tables) else ""
    axes[1].set_title(f"{len(tables):,} configurations of {count(len(others), 'graph')}{said}")
    save_figure(figure, path)


def _scatter_in_three(axes: Any, rows: np.ndarray, colours: np.ndarray | None) -> None:
    points, shares = project(rows, 3)
    shown = {"color": "#999999"} if colours is None else {"c": colours, "cmap": "viridis_r"}
    axes.scatter(*points.T, s=14, **shown)
    said = "" if colours is None else _say_separability(rows, colours)
    axes.set_title(f"in three components, {shares.sum():.0%} of the variance{said}")


def _say_separability(rows: np.ndarray, runtimes: np.ndarray) -> str:
    found = separability(project(rows, 3)[0], runtimes)
    return "" if np.isnan(found) else f";\na plane parts fast from slow in {found:.0%}"


def project(rows: np.ndarray, size: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Standardise the columns of `rows`, and return their first principal components (rows, size).
    Returns also the share (size,) of the variance that each component explains."""
    wide = rows.astype(np.float64)
    deviation = wide.std(axis=0)
    varies = deviation > 1e-6 * np.maximum(np.abs(wide.mean(axis=0)), 1)
    scaled = (wide[:, varies] - wide[:, varies].mean(axis=0)) / deviation[varies]
    if min(scaled.shape) < 2:
        return np.zeros((len(rows), size)), np.zeros(size)
    return principal_components(scaled, size)


def _sample(graphs: Sequence[Graph], rows_of: RowsOf) -> tuple[np.ndarray, np.ndarray]:
    """Return about MAX_POINTS rows of all graphs' feature tables, and the rank of each row in its
    graph. Ranks are between 0 (fastest) and 1."""
    if not graphs:
        return np.zeros((0, 0)), np.zeros(0)
    limit = max(1, MAX_POINTS // len(graphs))
    tables, ranks = [], []
    for graph in graphs:
        assert graph.runtimes is not None
        rows = choose_rows(graph, limit, seed=0)
        runtimes = np.sort(graph.distinct.mean(graph.runtimes))
        tables.append(rows_of(rows.graph))
        ranks.append(np.searchsorted(runtimes, rows.runtimes) / len(runtimes))
    return np.concatenate(tables), np.concatenate(ranks)


def _scatter(axes: Axes, rows: np.ndarray, colours: np.ndarray | None, label: str) -> np.ndarray:
    """Draw the rows in two principal components, and return their coordinates (rows, 2). `colours`:
    (rows,) values to colour by, with a colour bar called `label`; None: all grey."""
    points, shares = project(rows)
    size = float(np.clip(4000 / max(len(points), 1), 3, 40))
    if colours is None:
        axes.scatter(points[:, 0], points[:, 1], s=size, color="#999999")
    else:
        # draw fast configurations last, so that they lie on top
        order = np.argsort(-colours, kind="stable")
        drawn = axes.scatter(
            points[order, 0], points[order, 1], s=size, c=colours[order], cmap="viridis_r"
        )
        axes.figure.colorbar(drawn, ax=axes, label=label)
    for number, name in enumerate(("x", "y")):
        text = f"principal component {number + 1} ({shares[number]:.0%} of the variance)"
        getattr(axes, f"set_{name}label")(text)
    return points
