"""Draw a graph: its operations from inputs to output, and a histogram of its runtimes.

Operations are drawn from left to right, each as close to its consumers as possible: a parameter
stands beside its consumer, not at the left edge. A long program is wrapped into rows, like text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours, find_depths, starts_of
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODES, SHAPE_DIMENSIONS
from solution.features.preparation import keep_nodes, neighbourhood
from solution.system.pictures import show_plainly
from solution.system.wording import shorten

# larger layout graphs show only configurable nodes and their neighbours
MAX_NODES = 250
# in a row of the picture: rough maximum number of columns, maximum number of nodes in a column
COLUMNS, HIGHEST = 36, 12
GAP = 2.5  # vertical distance between two rows of the picture, in nodes
MAX_COLOURS = 7
REST_COLOUR = "#b8b8b8"
MAX_LABELLED_NODES = 60
MAX_LABELLED_LAYOUTS = 40
FASTEST_COLOUR = "#a03030"
NAME_WIDTH = 40
LEAST_SPREAD = 1e-9  # relative spread below which runtimes count as equal


@dataclass(frozen=True)
class Drawing:
    """A program, and where its nodes stand in the picture."""

    graph: Graph  # only the nodes that are drawn
    positions: np.ndarray  # (nodes, 2) float: x to the right, y upwards
    lines: np.ndarray  # (nodes,) int64: the row of the picture in which each node stands
    left_out: int  # number of nodes that are not drawn

    def find_edges(self) -> np.ndarray:
        """Return the positions (edges, 2, 2) of the producer and the consumer of each drawn edge.
        Edges between two rows of the picture are left out, because they would cross the rest."""
        consumers, producers = self.graph.edges.T
        stays = self.lines[consumers] == self.lines[producers]
        return self.positions[self.graph.edges[stays, ::-1]]


def lay_out(graph: Graph) -> Drawing:
    """Return the nodes of a program that are drawn, with their positions."""
    kept = np.arange(graph.num_nodes)
    if graph.num_nodes > MAX_NODES and len(graph.configurable):
        kept = np.flatnonzero(neighbourhood(graph, 1))
    shown = keep_nodes(graph, kept)
    # number the levels of the drawn nodes from 0, without gaps
    levels = np.unique(find_levels(graph)[kept], return_inverse=True)[1]
    columns, heights = _order_levels(shown, levels)
    width = int(columns.max(initial=0)) + 1
    # columns per row: all rows are about equally long, so that the last one is not almost empty
    of_a_line = -(-width // max(1, round(width / COLUMNS)))
    lines, columns = columns // of_a_line, columns % of_a_line
    # y coordinates: each row of the picture stands GAP below the previous one
    tops = np.zeros(len(heights))
    below = 0.0
    for line in np.unique(lines):
        members = lines == line
        tops[members] = heights[members] - heights[members].max() - below
        below += float(np.ptp(heights[members])) + GAP
    positions = np.stack([columns, tops], axis=1)
    return Drawing(shown, positions, lines, graph.num_nodes - shown.num_nodes)


def find_levels(graph: Graph) -> np.ndarray:
    """Return the level (nodes,) of each node: 0 is at the left, consumers are further right.

    level = longest path of the program - longest path from the node to an output, in edges. So a
    node stands one level left of its leftmost consumer. Nodes on or before a cycle, which XLA
    programs do not have, stand at the right.
    """
    ways = np.maximum(find_depths(graph.edges[:, ::-1], graph.num_nodes), 0)
    return np.asarray(ways.max(initial=0) - ways)


def describe_node(graph: Graph, node: int) -> str:
    """Return a node's opcode and shape, such as `dot 64x128`."""
    sizes = graph.node_features[node, SHAPE_DIMENSIONS].astype(int)
    shape = "x".join(str(size) for size in sizes if size)
    return f"{OPCODES.get(int(graph.node_opcodes[node]), 'others')} {shape}".strip()


def describe_fastest(graph: Graph) -> dict[int, str]:
    """Return the layouts that the fastest configuration sets, as text by configurable node.
    Dimensions are listed minor to major. Nodes that the configuration leaves to the compiler are
    left out; without runtimes the result is empty."""
    if graph.runtimes is None or not len(graph.configurable):
        return {}
    fastest = int(np.argmin(graph.runtimes))
    book = graph.layouts
    chosen = book.layouts[book.codes[book.rows[fastest]] + book.starts[:-1]]
    found = {}
    for node, layout in zip(graph.configurable.tolist(), chosen, strict=True):
        slots = layout.reshape(len(LAYOUT_TENSORS), MAX_RANK)
        said = [
            f"{name} {','.join(str(axis) for axis in order if axis >= 0)}"
            for name, order in zip(LAYOUT_TENSORS, slots, strict=True)
            if (order >= 0).any()
        ]
        if said:
            found[node] = "\n".join(said)
    return found


def _order_levels(graph: Graph, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the column (nodes,) of each node, and its height (nodes,) in this column.

    Levels are processed from right to left, and the nodes of a level are sorted by the mean height
    of their consumers (the barycentre heuristic of Sugiyama, Tagawa and Toda, 1981). A level with
    many nodes takes several columns.
    """
    heights, columns = np.zeros(graph.num_nodes), np.zeros(graph.num_nodes, np.int64)
    widths = -(-np.bincount(levels) // HIGHEST)
    starts = starts_of(widths)
    consumers = Neighbours.consumers(graph.edges, graph.num_nodes)
    for level in np.unique(levels)[::-1]:
        members = np.flatnonzero(levels == level)
        centres = []
        for node in members:
            read_by = consumers.at(node)
            centres.append(heights[read_by].mean() if len(read_by) else 0.0)
        ordered = members[np.argsort(centres, kind="stable")]
        for number, column in enumerate(np.array_split(ordered, widths[level])):
            columns[column] = starts[level] + number
            heights[column] = np.arange(len(column)) - (len(column) - 1) / 2
    return columns, heights


def make_figure(graph: Graph) -> Figure:
    """Return a figure: the program, with operands left of consumers, above its runtimes if any."""
    panels = 1 if graph.runtimes is None else 2
    drawing = lay_out(graph)
    height = float(np.clip(np.ptp(drawing.positions[:, 1]) * 0.4 + 2.5, 4.5, 16))
    figure = Figure(figsize=(13, height + 2.8 * (panels - 1)), layout="constrained")
    axes = figure.subplots(panels, 1, squeeze=False, height_ratios=[height, 2.8][:panels])
    _draw_program(drawing, axes[0, 0])
    if graph.runtimes is not None:
        _draw_runtimes(graph, axes[1, 0])
    return figure


def show_name(graph: Graph, width: int = NAME_WIDTH) -> str:
    """Return the graph's name for a title: shortened, without formulas or control characters."""
    return show_plainly(shorten(graph.name, width))


def _draw_program(drawing: Drawing, axes: Axes) -> None:
    graph, positions = drawing.graph, drawing.positions
    lines = drawing.find_edges()
    if graph.num_nodes <= MAX_LABELLED_NODES:
        for producer, consumer in lines:
            arrow = {"arrowstyle": "-|>", "color": "#808080", "shrinkA": 7, "shrinkB": 7, "lw": 0.8}
            axes.annotate(
                "", xy=tuple(consumer), xytext=tuple(producer), arrowprops=arrow, zorder=1
            )
    else:
        # many edges are drawn faintly, so that they do not hide the nodes
        alpha = float(np.clip(200 / max(1, len(lines)), 0.05, 0.3))
        axes.add_collection(
            LineCollection(list(lines), colors="black", alpha=alpha, linewidths=0.6)
        )
    size = float(np.clip(9000 / graph.num_nodes, 12, 90))
    for label, members, style in _node_groups(graph):
        x, y = positions[members].T
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
    """Write opcode and shape below nodes, and the fastest configuration's layouts above them. If
    there are too many nodes or layouts to be legible, they get no labels."""
    graph = drawing.graph
    fastest = describe_fastest(graph)
    named = list(range(graph.num_nodes))
    if len(named) > MAX_LABELLED_NODES:
        named = graph.configurable.tolist()
    for node in named if len(named) <= MAX_LABELLED_NODES else ():
        words = describe_node(graph, node).replace(" ", "\n", 1)
        _write(axes, drawing.positions[node], words, -7, "black")
    if len(fastest) > MAX_LABELLED_LAYOUTS:
        return  # the labels would overlap
    for node, words in fastest.items():
        _write(axes, drawing.positions[node], words, 7, FASTEST_COLOUR)
    if fastest:
        axes.plot([], [], " ", label="above a node: the layouts of the\nfastest configuration")


def _write(axes: Axes, position: np.ndarray, words: str, points: int, colour: str) -> None:
    """Write `words` above the node at `position`, `points` points away; negative: below it."""
    side: Literal["bottom", "top"] = "bottom" if points > 0 else "top"
    axes.annotate(
        words, (position[0], position[1]), xytext=(0, points), textcoords="offset points",
        ha="center", va=side, fontsize=6.5, color=colour, zorder=5,
        # a white outline keeps the text legible over lines and nodes
        path_effects=[withStroke(linewidth=1.8, foreground="white")],
    )  # fmt: skip


def _node_groups(graph: Graph) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """Yield the groups of nodes to draw: label, members (nodes,) bool and style of the points. The
    groups are the most frequent opcodes, all other opcodes, and the configurable nodes."""
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
