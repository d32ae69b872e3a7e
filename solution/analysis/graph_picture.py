"""Draw a graph: its operations from inputs to output, and a histogram of its runtimes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from solution.analysis.program_drawing import Drawing, describe_fastest, describe_node, lay_out
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODES
from solution.system.pictures import save_figure, show_plainly

MAX_COLOURS = 7
REST_COLOUR = "#b8b8b8"
MAX_LABELLED_NODES = 60
MAX_LABELLED_LAYOUTS = 40
FASTEST_COLOUR = "#a03030"
NAME_WIDTH = 40
LEAST_SPREAD = 1e-9  # relative spread below which runtimes count as equal


def draw_graph(graph: Graph, path: Path) -> None:
    """Write the picture of a graph to a .png, .svg or .pdf file, as the path ends."""
    save_figure(make_figure(graph), path)


def make_figure(graph: Graph) -> Figure:
    """Return a figure of the program, operands left of consumers, and a histogram of its
    runtimes."""
    panels = 1 if graph.runtimes is None else 2
    drawing = lay_out(graph)
    height = float(np.clip(np.ptp(drawing.places[:, 1]) * 0.4 + 2.5, 4.5, 16))
    figure = Figure(figsize=(13, height + 2.8 * (panels - 1)), layout="constrained")
    axes = figure.subplots(panels, 1, squeeze=False, height_ratios=[height, 2.8][:panels])
    _draw_program(drawing, axes[0, 0])
    if graph.runtimes is not None:
        _draw_runtimes(graph, axes[1, 0])
    return figure


def show_name(graph: Graph) -> str:
    """Return the graph's name for a title: shortened, without formulas or control characters."""
    name = graph.name
    return show_plainly(name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…")


def _draw_program(drawing: Drawing, axes: Axes) -> None:
    graph, places = drawing.graph, drawing.places
    lines = drawing.find_edges()
    if graph.num_nodes <= MAX_LABELLED_NODES:
        for producer, consumer in lines:
            arrow = {"arrowstyle": "-|>", "color": "#808080", "shrinkA": 7, "shrinkB": 7, "lw": 0.8}
            axes.annotate(
                "", xy=tuple(consumer), xytext=tuple(producer), arrowprops=arrow, zorder=1
            )
    else:
        # many lines are faint, so that they do not hide the nodes
        alpha = float(np.clip(200 / max(1, len(lines)), 0.05, 0.3))
        axes.add_collection(
            LineCollection(list(lines), colors="black", alpha=alpha, linewidths=0.6)
        )
    size = float(np.clip(9000 / graph.num_nodes, 12, 90))
    for label, members, style in _node_groups(graph):
        x, y = places[members].T
        scale = 2.2 if "edgecolors" in style else 1
        axes.scatter(x, y, s=scale * size, label=f"{label} ({members.sum():,})", **style)
    _label_nodes(drawing, axes)
    said = f": {graph.num_nodes + drawing.left_out:,} operations"
    if drawing.left_out:
        said += f", of which {graph.num_nodes:,} are settable or beside a settable one"
    axes.set_title(f"{graph.collection.name}:{show_name(graph)}{said}")
    axes.set_axis_off()
    axes.margins(0.06, 0.12)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _label_nodes(drawing: Drawing, axes: Axes) -> None:
    """Label nodes with opcode and shape, and with the layouts of the fastest configuration, if
    few."""
    graph = drawing.graph
    fastest = describe_fastest(graph)
    named = list(range(graph.num_nodes))
    if len(named) > MAX_LABELLED_NODES:
        named = graph.configurable.tolist()
    for node in named if len(named) <= MAX_LABELLED_NODES else ():
        words = describe_node(graph, node).replace(" ", "\n", 1)
        _write(axes, drawing.places[node], words, -7, "black")
    if len(fastest) > MAX_LABELLED_LAYOUTS:
        return  # the labels would overlap
    for node, words in fastest.items():
        _write(axes, drawing.places[node], words, 7, FASTEST_COLOUR)
    if fastest:
        axes.plot([], [], " ", label="above a node: the layouts of the\nfastest configuration")


def _write(axes: Axes, place: np.ndarray, words: str, points: int, colour: str) -> None:
    """Write words `points` above a node (below it if negative)."""
    side: Literal["bottom", "top"] = "bottom" if points > 0 else "top"
    axes.annotate(
        words, (place[0], place[1]), xytext=(0, points), textcoords="offset points",
        ha="center", va=side, fontsize=6.5, color=colour, zorder=5,
        # keeps the text legible over lines and nodes
        path_effects=[withStroke(linewidth=1.8, foreground="white")],
    )  # fmt: skip


def _node_groups(graph: Graph) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """Yield the groups of nodes to draw: label, members (nodes,) bool and style of the points.

    The groups are the most frequent opcodes, all other opcodes, and the configurable nodes.
    """
    opcodes, counts = np.unique(graph.node_opcodes, return_counts=True)
    named = opcodes[np.argsort(-counts, kind="stable")][:MAX_COLOURS]
    for colour, opcode in enumerate(named):
        members = graph.node_opcodes == opcode
        yield OPCODES.get(int(opcode), "others"), members, {"color": f"C{colour}", "zorder": 2}
    if len(named) < len(opcodes):
        rest = ~np.isin(graph.node_opcodes, named)
        yield "other", rest, {"color": REST_COLOUR, "zorder": 2}
    if len(graph.configurable):
        members = np.isin(np.arange(graph.num_nodes), graph.configurable)
        yield "configurable", members, {"facecolors": "none", "edgecolors": "black", "zorder": 3}


def _draw_runtimes(graph: Graph, axes: Axes) -> None:
    assert graph.runtimes is not None
    slower = graph.runtimes / graph.runtimes.min() - 1
    bins = min(60, graph.num_configs) if slower.max() > LEAST_SPREAD else 1
    axes.hist(1 + slower, bins=bins, color="C0")
    axes.set_title(f"Runtimes of {graph.num_configs:,} configurations")
    axes.set_xlabel("runtime over the fastest")
    axes.set_ylabel("configurations")
