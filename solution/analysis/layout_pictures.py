"""Draw how much faster a layout could be and what it costs, of graphs repaired but not pruned."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from solution.analysis import measures
from solution.analysis.graph_picture import show_name
from solution.analysis.panels import (
    COLOURS,
    NO_LAYOUT,
    draw_rule,
    labelled_layouts,
    make_panels,
    say,
    spread_evenly,
)
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau

BINS = 20


def draw_ranges(graphs: Sequence[Graph]) -> Figure:
    """Return histograms of (slowest - fastest) / mean runtime over graphs, a panel per
    collection."""
    figure, panels = make_panels(graphs, "What configurations decide: (slowest - fastest) / mean")
    for axes, own in panels:
        ranges = [measures.relative_range(graph) for graph in own]
        axes.hist(ranges, bins=BINS, color=COLOURS[own[0].key[0]])
        axes.axvline(float(np.median(ranges)), color="black", lw=0.8, ls=":")
        axes.set_xlabel("range of the runtimes over their mean")
        axes.set_ylabel("graphs")
        axes.set_title(f"{axes.get_title()}: median {np.median(ranges):.2f}", fontsize=9)
    return figure


def draw_gains(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of the speedup of the fastest configuration over the compiler's, a bar per
    graph."""
    known = [graph for graph in graphs if graph.runtimes is not None]
    known = [graph for graph in known if measures.own_runtime(graph) is not None]
    if not known:
        return say("no graph has the compiler's own configuration")
    figure, panels = make_panels(known, "The fastest configuration over the compiler's own")
    for axes, own in panels:
        gains = sorted(100 * (measures.gain_over_compiler(graph) or 0) for graph in own)[::-1]
        axes.bar(range(len(gains)), gains, color=COLOURS[own[0].key[0]])
        axes.set_xlabel("graphs")
        axes.set_ylabel("faster by (%)")
        words = f"median {np.median(gains):.0f}%, at most {max(gains):.0f}%"
        axes.set_title(f"{axes.get_title()}: {words}", fontsize=9)
    return figure


def draw_distances(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of whether runtime grows with the distance from the fastest configuration.

    The distance counts swaps of dimensions (solution.analysis.measures.swaps_to_best).
    """
    return draw_rule(
        graphs,
        measures.swaps_to_best,
        "distance",
        "swaps of dimensions away from the fastest configuration",
    )


def draw_copies(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of the trade-off between padding in each operation and copies between them.

    Left: for each graph, Kendall's tau of the padding and of the copied bytes with the runtime.
    Right: the configurations of the program in which padding and copies vary most.
    """
    layout = labelled_layouts(graphs)
    if not layout:
        return say(NO_LAYOUT)
    costs = [(measures.padded_bytes(graph), measures.copied_bytes(graph)) for graph in layout]
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    times = [measures.slowdowns(graph) for graph in layout]
    taus = [[kendall_tau(c, t) for c in own] for own, t in zip(costs, times, strict=True)]
    for name, colour in COLOURS.items():
        own = [tau for tau, graph in zip(taus, layout, strict=True) if graph.key[0] == name]
        if own:
            left.scatter(*zip(*own, strict=True), color=colour, s=22, alpha=0.6, label=name)
    left.axhline(0, color="black", lw=0.8, ls=":")
    left.axvline(0, color="black", lw=0.8, ls=":")
    left.set_xlabel("Kendall's tau of padding and runtime (a point a graph)")
    left.set_ylabel("Kendall's tau of copied bytes and runtime")
    left.set_title("What a layout costs: in each operation, and between them")
    left.legend(fontsize=8, frameon=False)
    widest = int(np.argmax([np.prod([np.std(cost) for cost in own]) for own in costs]))
    _draw_trade(right, layout[widest], *costs[widest])
    return figure


def _draw_trade(axes: Axes, graph: Graph, padded: np.ndarray, copied: np.ndarray) -> None:
    """Draw padding against copied bytes, a point per configuration; mark the fastest one."""
    chosen, slow = spread_evenly(graph.num_configs), measures.slowdowns(graph)
    points = axes.scatter(
        100 * padded[chosen], 100 * copied[chosen], c=slow[chosen], cmap="viridis_r", s=14
    )
    axes.figure.colorbar(points, ax=axes, label="runtime over the fastest")
    best = int(slow.argmin())
    axes.plot(
        100 * padded[best], 100 * copied[best], "o", ms=11, mfc="none", mec="C3", label="fastest"
    )
    axes.set_xlabel("padding of what configurable nodes write and read (% of the bytes)")
    axes.set_ylabel("bytes between them that are copied (%)")
    axes.set_title(f"Configurations of {graph.key[0]}:{show_name(graph)}", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="center right")
