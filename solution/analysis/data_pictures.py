"""Draw the figures of a first look at the data; graphs have corrected padding but are not pruned.

Each function returns a figure: a notebook displays it, a report or a test saves it.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from solution.analysis import measures
from solution.analysis.graph_picture import show_name
from solution.analysis.graph_tables import BAND
from solution.domain.collection import NAMES
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.domain.vocabulary import OPCODES, VIRTUAL
from solution.papers.published_numbers import read_published
from solution.system.wording import count

COLOURS = {name: f"C{position}" for position, name in enumerate(NAMES)}
MAX_POINTS = 2000  # maximum number of points of one graph in a scatter plot
NO_LAYOUT = "no labelled layout graph"
# maximum number of graphs per collection whose configurations are drawn in one panel
MAX_GRAPHS = 8
MAX_OPCODES = 9
HOPS = range(5)
REST = "#c8c8c8"
LARGEST_LINEAR = 5  # an axis is logarithmic if it reaches beyond this value
NAME_WIDTH = 24
BINS = 20


def make_panels(
    graphs: Sequence[Graph], title: str, height: float = 3.2
) -> tuple[Figure, list[tuple[Axes, list[Graph]]]]:
    """Return a figure with a panel for each collection that has labelled graphs, and the panels as
    a list of (axes, labelled graphs)."""
    groups: dict[str, list[Graph]] = {}
    for name in NAMES:
        if found := [g for g in graphs if g.key[0] == name and g.runtimes is not None]:
            groups[name] = found
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    # A figure with one panel must be wide enough for its title.
    figure = Figure(figsize=(max(4.2 * columns, 7.0), height * rows), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(panels, groups, strict=False):
        axes.set_title(name, fontsize=9)
    for axes in panels[len(groups) :]:
        axes.set_axis_off()
    return figure, list(zip(panels, groups.values(), strict=False))


def draw_violations(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of how well the violation ratio ranks the configurations of labelled layout
    graphs. It is the share of nodes whose largest dimension is not minor-most.

    Left: Kendall's tau of the ratio with the runtime, a point per graph. Right: the graph with the
    largest absolute tau, a point per configuration.
    """
    layout = labelled_layouts(graphs)
    if not layout:
        return say(NO_LAYOUT)
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    measured = [100 * measures.violation_ratio(graph) for graph in layout]
    taus = [kendall_tau(m, measures.slowdowns(g)) for m, g in zip(measured, layout, strict=True)]
    names = [name for name in NAMES if any(graph.key[0] == name for graph in layout)]
    for row, collection in enumerate(names):
        found = [tau for tau, g in zip(taus, layout, strict=True) if g.key[0] == collection]
        left.scatter(found, [row] * len(found), color=COLOURS[collection], alpha=0.6, s=22)
        mean, bar = float(np.mean(found)), {"color": "black", "marker": "|", "s": 240}
        left.scatter([mean], [row], label="mean of the collection" if row == 0 else None, **bar)
    left.axvline(0, color="black", lw=0.8, ls=":", label="tells nothing")
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    left.set_xlabel("Kendall's tau of violation ratio and runtime (a point a graph)")
    left.set_title("Violation ratio against runtime")
    left.legend(fontsize=8, frameon=False, loc="lower left")
    strongest = int(np.argmax(np.abs(taus)))
    graph = layout[strongest]
    chosen = spread_evenly(graph.num_configs)
    right.scatter(measured[strongest][chosen], measures.slowdowns(graph)[chosen], s=8, alpha=0.5)
    right.set_xlabel("nodes whose largest dimension is not minor-most (%)")
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
    """Label a log axis at 1, 2 and 5 times powers of ten; labels at powers alone are too few."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def draw_runtimes(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of runtime / fastest runtime, sorted, with a line for each labelled graph."""
    figure, panels = make_panels(graphs, "How much there is to gain: runtimes inside a graph")
    for axes, drawn in panels:
        for graph in drawn:
            share = np.linspace(0, 100, graph.num_configs)
            ordered = np.sort(measures.slowdowns(graph))
            axes.plot(share, ordered, color=COLOURS[graph.key[0]], alpha=0.5, lw=1)
        if axes.get_ylim()[1] > LARGEST_LINEAR:
            axes.set_yscale("log")
            label_some(axes.yaxis)
        axes.set_ylim(bottom=1)
        axes.set_xlabel("configurations, fastest first (%)")
        axes.set_ylabel("runtime over the fastest")
        axes.set_title(f"{axes.get_title()}: {count(len(drawn), 'graph')}, a line each", fontsize=9)
    return figure


def draw_noise(summaries: pl.DataFrame) -> Figure:
    """Return a figure of the share of duplicate configurations, and how much their runtimes differ.
    `summaries`: the table of solution.data.summaries, a row per graph."""
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.4])
    shares = [_repeated(summaries.filter(pl.col("collection") == name)) for name in NAMES]
    left.barh(NAMES, shares, color=list(COLOURS.values()))
    left.invert_yaxis()
    left.bar_label(left.containers[0], fmt="%.1f%%", padding=3, fontsize=8)
    left.set_xlim(0, 1.2 * max(*shares, 1))
    left.set_xlabel("configurations that repeat another one (%)")
    left.set_title("Duplicates")
    noisy = summaries.filter(pl.col("noise").is_not_null() & pl.col("spread").is_not_null())
    for name, colour in COLOURS.items():
        points = noisy.filter(pl.col("collection") == name)
        if len(points):
            spread, noise = 100 * (points["spread"] - 1), 100 * points["noise"]
            right.scatter(spread, noise, color=colour, s=18, alpha=0.7, label=name)
    if len(noisy):
        largest = float(100 * (noisy["spread"].max() - 1))  # type: ignore[operator]
        right.plot(
            [0.1, largest], [0.1, largest], color="black", lw=0.8, ls=":", label="noise = spread"
        )
        right.set_xscale("log")
        right.set_yscale("symlog", linthresh=0.1)
        right.set_ylim(bottom=0)
        right.legend(fontsize=8, frameon=False)
    else:
        right.text(0.5, 0.5, "no equal configurations with labels", ha="center")
    right.set_xlabel("spread: the slowest over the fastest of the graph, less one (%)")
    right.set_ylabel("median gap between equal\nconfigurations (%)")
    right.set_title(f"Noise: {count(len(noisy), 'graph')} with equal configurations")
    return figure


def draw_configurations(graph: Graph) -> Figure:
    """Return a figure of a labelled graph's configurations, in two principal components."""
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    chosen = spread_evenly(graph.num_configs)
    coordinates, shares = measures.principal_components(
        measures.graph_vectors(graph.select(chosen))
    )
    assert graph.runtimes is not None
    colours = 100 * graph.runtimes[chosen].argsort().argsort() / len(chosen)
    shown = axes.scatter(coordinates[:, 0], coordinates[:, 1], c=colours, cmap="viridis_r", s=10)
    figure.colorbar(shown, label="runtime, as a rank (0: fastest, 100: slowest)")
    _label_components(axes, shares)
    axes.set_title(f"Configurations of {graph.collection.name}:{show_name(graph)}", fontsize=10)
    return figure


def draw_across(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of several graphs' configurations, in two principal components. The
    components are computed once per collection, from all its drawn graphs together."""
    figure, panels = make_panels(graphs, "Configurations of several graphs: a colour each", 4.2)
    for axes, labelled in panels:
        shown = [labelled[number] for number in spread_evenly(len(labelled), MAX_GRAPHS)]
        limit = MAX_POINTS // MAX_GRAPHS
        drawn = [graph.select(spread_evenly(graph.num_configs, limit)) for graph in shown]
        vectors = [measures.shared_vectors(graph) for graph in drawn]
        coordinates, shares = measures.principal_components(np.concatenate(vectors))
        ends = np.cumsum([len(part) for part in vectors])[:-1]
        parts = np.split(coordinates, ends)
        points = [
            axes.scatter(part[:, 0], part[:, 1], s=6, color=f"C{number}", alpha=0.6)
            for number, part in enumerate(parts)
        ]
        # Put the legend below the panel, where it covers no points. Pass it the points: without
        # them, matplotlib leaves out names that begin with _.
        axes.legend(
            points, [show_name(graph, NAME_WIDTH) for graph in shown],
            fontsize=6, markerscale=2, frameon=False, ncols=2,
            loc="upper center", bbox_to_anchor=(0.5, -0.18),
        )  # fmt: skip
        axes.locator_params(nbins=5)
        _label_components(axes, shares)
    return figure


def draw_opcodes(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of each program's fastest runtime, beside its shares of opcodes. The program
    with the shortest runtime stands first."""
    layout = labelled_layouts(graphs)
    if not layout:
        return say(NO_LAYOUT)
    # a program that stands in the collections of both searches (default, random) counts once
    programs = {graph.architecture + graph.name: graph for graph in layout}
    ordered = sorted(programs.values(), key=measures.fastest)
    figure = Figure(figsize=(12, 2 + 0.22 * len(ordered)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1, 2.4])
    names = [show_name(graph, NAME_WIDTH) for graph in ordered]
    for name, colour in COLOURS.items():
        rows = [row for row, graph in enumerate(ordered) if graph.key[0] == name]
        times = [measures.fastest(ordered[row]) / 1e6 for row in rows]
        if rows:
            left.barh(rows, times, color=colour, label=name)
    left.set_yticks(range(len(names)), names, fontsize=7)
    left.set_xscale("log")
    label_some(left.xaxis)
    left.set_xlabel("runtime of the fastest configuration (ms)")
    left.set_title("Runtime")
    left.legend(fontsize=7, frameon=False, loc="upper right")
    left.set_ylim(-0.6, len(names) - 0.4)
    left.invert_yaxis()
    shares = 100 * np.stack([measures.opcode_shares(graph) for graph in ordered])
    frequent = np.argsort(-shares.mean(axis=0), kind="stable")[:MAX_OPCODES]
    start = np.zeros(len(ordered))
    for number, opcode in enumerate(frequent):
        name = "merged" if opcode == VIRTUAL else OPCODES[int(opcode)]
        right.barh(range(len(names)), shares[:, opcode], left=start, color=f"C{number}", label=name)
        start += shares[:, opcode]
    right.barh(range(len(names)), 100 - start, left=start, color=REST, label="others")
    right.set_xlim(0, 100)
    right.set_xlabel("share of the operations (%)")
    right.set_title("Operations")
    right.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def draw_pruning(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of the share of nodes that pruning keeps. The x axis is the number of hops:
    edges from the configurable nodes to the furthest kept node."""
    if not any(len(graph.configurable) for graph in graphs):
        return say("no configurable node")
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for name, colour in COLOURS.items():
        pruned = [graph for graph in graphs if graph.key[0] == name and len(graph.configurable)]
        if pruned:
            kept = 100 * np.array([measures.kept_shares(graph, HOPS) for graph in pruned])
            low, middle, high = np.quantile(kept, (0.25, 0.5, 0.75), axis=0)
            # Dashed for random: its line equals the default's, because the programs are the same.
            line = "-" if name.endswith("default") else "--"
            axes.plot(HOPS, middle, color=colour, marker="o", ls=line, label=name)
            axes.fill_between(HOPS, low, high, color=colour, alpha=0.15, lw=0)
    axes.set_xticks(HOPS)
    axes.set_ylim(0, 100)
    axes.set_xlabel("hops that are kept around the configurable nodes")
    axes.set_ylabel("nodes kept (%), median and quartiles")
    axes.set_title("What pruning keeps")
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def draw_scale(graphs: Sequence[Graph]) -> Figure:
    """Return a figure with a point per graph: its number of configurations and its number of nodes.
    A band marks the published mean numbers of nodes of TpuGraphs' layout graphs."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.subplots()
    low, high = (read_published().numbers[name].value for name in BAND)
    axes.axhspan(low, high, color="0.85", lw=0, label="means of TpuGraphs' layouts, as reported")
    for name, colour in COLOURS.items():
        found = [graph for graph in graphs if graph.key[0] == name]
        if found:
            configs, nodes = [g.num_configs for g in found], [g.num_nodes for g in found]
            axes.scatter(configs, nodes, s=16, alpha=0.6, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    label_some(axes.xaxis)
    label_some(axes.yaxis)
    axes.set_xlabel("configurations")
    axes.set_ylabel("nodes")
    axes.set_title(f"Scale: {count(len(graphs), 'graph')}, a point each")
    axes.legend(fontsize=7, frameon=False)
    return figure


def _repeated(summaries: pl.DataFrame) -> float:
    configs, distinct = sum(summaries["configs"]), sum(summaries["distinct"])
    return 100 * (1 - distinct / configs) if configs else 0.0


def _label_components(axes: Axes, shares: np.ndarray) -> None:
    axes.set_xlabel(f"first component ({shares[0]:.0%} of the variance)")
    axes.set_ylabel(f"second component ({shares[1]:.0%})")


def draw_ranges(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of (slowest - fastest) / mean runtime: a histogram per collection."""
    figure, panels = make_panels(graphs, "What configurations decide: (slowest - fastest) / mean")
    for axes, labelled in panels:
        ranges = [measures.relative_range(graph) for graph in labelled]
        axes.hist(ranges, bins=BINS, color=COLOURS[labelled[0].key[0]])
        axes.axvline(float(np.median(ranges)), color="black", lw=0.8, ls=":")
        axes.set_xlabel("range of the runtimes over their mean")
        axes.set_ylabel("graphs")
        axes.set_title(f"{axes.get_title()}: median {np.median(ranges):.2f}", fontsize=9)
    return figure


def draw_gains(graphs: Sequence[Graph]) -> Figure:
    """Return a figure of each graph's speedup over the compiler's default, a bar per graph."""
    known = [graph for graph in graphs if graph.runtimes is not None]
    known = [graph for graph in known if measures.default_runtime(graph) is not None]
    if not known:
        return say("no graph has the compiler's default configuration")
    figure, panels = make_panels(known, "The fastest configuration over the compiler's default")
    for axes, labelled in panels:
        gains = sorted(100 * (measures.gain_over_compiler(graph) or 0) for graph in labelled)[::-1]
        axes.bar(range(len(gains)), gains, color=COLOURS[labelled[0].key[0]])
        axes.set_xlabel("graphs")
        axes.set_ylabel("faster by (%)")
        words = f"median {np.median(gains):.0f}%, at most {max(gains):.0f}%"
        axes.set_title(f"{axes.get_title()}: {words}", fontsize=9)
    return figure
