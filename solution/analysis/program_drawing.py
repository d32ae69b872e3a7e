"""Where each operation of a program stands in its picture, and what is said beside it.

Operations stand from left to right, each as near to what reads it as it can: a parameter beside its
consumer, and not all of them at the left edge. A long program goes on in a line below, like text.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours, find_depths
from solution.domain.ragged import starts_of
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODES, SHAPE_DIMENSIONS
from solution.features.pruning import keep_nodes, neighbourhood

MAX_NODES = 250  # of larger layout graphs only settable nodes and their neighbours are drawn
COLUMNS, HIGHEST = 36, 12  # of a line of the picture, about
GAP = 2.5  # between two lines, in the height of a node


@dataclass(frozen=True)
class Drawing:
    """A program that is ready to be drawn."""

    graph: Graph  # what is shown of it
    places: np.ndarray  # (nodes, 2) float: to the right, and up
    lines: np.ndarray  # (nodes,) int64
    left_out: int  # nodes

    def find_edges(self) -> np.ndarray:
        """The places (edges, 2, 2) of producer and consumer, of edges that stay in a line.

        One that goes on in another line would cross everything between.
        """
        consumers, producers = self.graph.edges.T
        stays = self.lines[consumers] == self.lines[producers]
        return self.places[self.graph.edges[stays, ::-1]]


def lay_out(graph: Graph) -> Drawing:
    """Choose what is drawn of a program, and where."""
    kept = np.arange(graph.num_nodes)
    if graph.num_nodes > MAX_NODES and len(graph.configurable):
        kept = np.flatnonzero(neighbourhood(graph, 1))
    shown = keep_nodes(graph, kept)
    levels = _dense(find_levels(graph)[kept])
    columns, heights = _order_levels(shown, levels)
    width = int(columns.max(initial=0)) + 1
    of_a_line = -(-width // max(1, round(width / COLUMNS)))  # no line is left with a node or two
    lines, columns = columns // of_a_line, columns % of_a_line
    tops = np.zeros(len(heights))
    below = 0.0
    for line in np.unique(lines):
        members = lines == line
        tops[members] = heights[members] - heights[members].max() - below
        below += float(np.ptp(heights[members])) + GAP
    places = np.stack([columns, tops], axis=1)
    return Drawing(shown, places, lines, graph.num_nodes - shown.num_nodes)


def find_levels(graph: Graph) -> np.ndarray:
    """How far to the right each node (nodes,) stands: as far as those that read it allow.

    The longest way from it to an end of the program, counted from the right. Nodes on or behind a
    cycle, which no program of XLA's has, stand at the right.
    """
    ways = np.maximum(find_depths(graph.edges[:, ::-1], graph.num_nodes), 0)
    return np.asarray(ways.max(initial=0) - ways)


def describe_node(graph: Graph, node: int) -> str:
    """Opcode and shape, such as `dot 64x128`."""
    sizes = graph.node_features[node, SHAPE_DIMENSIONS].astype(int)
    shape = "x".join(str(size) for size in sizes if size)
    return f"{OPCODES.get(int(graph.node_opcodes[node]), 'others')} {shape}".strip()


def describe_fastest(graph: Graph) -> dict[int, str]:
    """By settable node, the layouts that the fastest configuration gives it, minor to major.

    Nodes that it leaves to the compiler, and graphs without runtimes, have none.
    """
    if graph.runtimes is None or not len(graph.configurable):
        return {}
    fastest = int(np.argmin(graph.runtimes))
    book = graph.layouts
    chosen = book.layouts[book.codes[book.rows[fastest]] + book.starts[:-1]]
    found = {}
    for node, layout in zip(graph.configurable.tolist(), chosen, strict=True):
        slots = layout.reshape(len(LAYOUT_TENSORS), MAX_RANK)
        said = [
            f"{name} {','.join(str(slot) for slot in own if slot >= 0)}"
            for name, own in zip(LAYOUT_TENSORS, slots, strict=True)
            if (own >= 0).any()
        ]
        if said:
            found[node] = "\n".join(said)
    return found


def _dense(levels: np.ndarray) -> np.ndarray:
    """The same order without gaps, which nodes that are left out leave."""
    return np.asarray(np.unique(levels, return_inverse=True)[1].reshape(levels.shape))


def _order_levels(graph: Graph, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column of each node (nodes,) and how high it stands there, near what reads it.

    From right to left, for a consumer is placed before its producers (Sugiyama, Tagawa and Toda,
    1981: the barycentre heuristic). A level with many nodes takes several columns.
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
