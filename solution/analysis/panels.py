"""Helpers of the first-look figures: colours, panels, samples, axes, and the plot of a
heuristic."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from solution.analysis import measures
from solution.analysis.graph_picture import show_name
from solution.domain.collection import NAMES
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau

COLOURS = {name: f"C{position}" for position, name in enumerate(NAMES)}
MAX_POINTS = 2000  # points of one graph in a scatter plot
NO_LAYOUT = "no labelled layout graph"


def make_panels(
    graphs: Sequence[Graph], title: str, height: float = 3.2
) -> tuple[Figure, list[tuple[Axes, list[Graph]]]]:
    """Return a figure with a panel for each collection with labelled graphs, and these graphs."""
    groups = {
        name: [graph for graph in graphs if graph.key[0] == name and graph.runtimes is not None]
        for name in NAMES
    }
    groups = {name: own for name, own in groups.items() if own}
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    # A figure with one panel must be wide enough for its title.
    figure = Figure(figsize=(max(4.2 * columns, 7.0), height * rows), layout="constrained")
    figure.suptitle(title)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(places, groups, strict=False):
        axes.set_title(name, fontsize=9)
    for axes in places[len(groups) :]:
        axes.set_axis_off()
    return figure, list(zip(places, groups.values(), strict=False))


def draw_rule(
    graphs: Sequence[Graph], measure: Callable[[Graph], np.ndarray], name: str, counted: str
) -> Figure:
    """Return a figure of how well a heuristic ranks labelled layout graphs.

    Left: Kendall's tau of the heuristic with the runtime, a point per graph. Right: the graph with
    the largest absolute tau.

    Args:
        measure: returns the heuristic's values (configs,) for a graph.
        name: the heuristic's name.
        counted: the axis label of its values.
    """
    layout = labelled_layouts(graphs)
    if not layout:
        return say(NO_LAYOUT)
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    measured = [measure(graph) for graph in layout]
    taus = [kendall_tau(m, measures.slowdowns(g)) for m, g in zip(measured, layout, strict=True)]
    names = [own for own in NAMES if any(graph.key[0] == own for graph in layout)]
    for row, collection in enumerate(names):
        own = [tau for tau, graph in zip(taus, layout, strict=True) if graph.key[0] == collection]
        left.scatter(own, [row] * len(own), color=COLOURS[collection], alpha=0.6, s=22)
        mean, bar = float(np.mean(own)), {"color": "black", "marker": "|", "s": 240}
        left.scatter([mean], [row], label="mean of the collection" if row == 0 else None, **bar)
    left.axvline(0, color="black", lw=0.8, ls=":", label="tells nothing")
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    left.set_xlabel(f"Kendall's tau of {name} and runtime (a point a graph)")
    left.set_title(f"{name.capitalize()} against runtime")
    left.legend(fontsize=8, frameon=False, loc="lower left")
    strongest = int(np.argmax(np.abs(taus)))
    graph = layout[strongest]
    chosen = spread_evenly(graph.num_configs)
    right.scatter(measured[strongest][chosen], measures.slowdowns(graph)[chosen], s=8, alpha=0.5)
    right.set_xlabel(counted)
    right.set_ylabel("runtime over the fastest")
    words = f"{graph.key[0]}:{show_name(graph)}, tau {taus[strongest]:+.2f}"
    right.set_title(f"The strongest: {words}", fontsize=10)
    return figure


def labelled_layouts(graphs: Sequence[Graph]) -> list[Graph]:
    """Return the layout graphs that have runtimes."""
    return [g for g in graphs if g.collection.kind == "layout" and g.runtimes is not None]


def say(words: str) -> Figure:
    """Return a figure that only shows a text, for when there is nothing to draw."""
    figure = Figure(figsize=(6, 2))
    figure.text(0.5, 0.5, words, ha="center")
    return figure


def spread_evenly(count: int, most: int = MAX_POINTS) -> np.ndarray:
    """Return at most `most` evenly spaced indices below `count`."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def label_some(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten; powers alone may give one
    label."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())
