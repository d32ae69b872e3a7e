"""Choose the positions of a program's operations in its picture, and their labels.

Operations stand from left to right, each as close to its consumers as possible: a parameter stands
beside its consumer and not at the left edge. A long program is wrapped into rows, like text.
"""

from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours, find_depths
from solution.domain.ragged import starts_of
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODES, SHAPE_DIMENSIONS
from solution.features.preparation import keep_nodes, neighbourhood

MAX_NODES = 250  # larger layout graphs show only configurable nodes and their neighbours
COLUMNS, HIGHEST = 36, 12  # approximate width and height of a row, in nodes
GAP = 2.5  # between two rows, in nodes


@dataclass(frozen=True)
class Drawing:
    """A program with the positions of its nodes."""

    graph: Graph  # only the nodes that are drawn
    places: np.ndarray  # (nodes, 2) float: x to the right, y upwards
    lines: np.ndarray  # (nodes,) int64: the row of the picture
    left_out: int  # nodes that are not drawn

    def find_edges(self) -> np.ndarray:
        """Return the positions (edges, 2, 2) of producer and consumer of the edges inside a row.

        Edges between rows are left out, because they would cross everything in between.
        """
        consumers, producers = self.graph.edges.T
        stays = self.lines[consumers] == self.lines[producers]
        return self.places[self.graph.edges[stays, ::-1]]


def lay_out(graph: Graph) -> Drawing:
    """Choose the nodes of a program that are drawn, and their positions."""
    kept = np.arange(graph.num_nodes)
    if graph.num_nodes > MAX_NODES and len(graph.configurable):
        kept = np.flatnonzero(neighbourhood(graph, 1))
    shown = keep_nodes(graph, kept)
    levels = _dense(find_levels(graph)[kept])
    columns, heights = _order_levels(shown, levels)
    width = int(columns.max(initial=0)) + 1
    # nodes per row, so that the last row is not almost empty
    of_a_line = -(-width // max(1, round(width / COLUMNS)))
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
    """Return the level (nodes,) of each node from the left, as far right as its consumers allow.

    It is the length of the longest path of the program less the longest path from the node to an
    output. Nodes on or before a cycle, which XLA programs do not have, stand at the right.
    """
    ways = np.maximum(find_depths(graph.edges[:, ::-1], graph.num_nodes), 0)
    return np.asarray(ways.max(initial=0) - ways)


def describe_node(graph: Graph, node: int) -> str:
    """Return a node's opcode and shape, such as `dot 64x128`."""
    sizes = graph.node_features[node, SHAPE_DIMENSIONS].astype(int)
    shape = "x".join(str(size) for size in sizes if size)
    return f"{OPCODES.get(int(graph.node_opcodes[node]), 'others')} {shape}".strip()


def describe_fastest(graph: Graph) -> dict[int, str]:
    """Return the layouts that the fastest configuration sets, minor to major, by configurable node.

    Nodes that it leaves to the compiler are left out; without runtimes the result is empty.
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
    """Return the levels renumbered without gaps; nodes that are not drawn leave gaps."""
    return np.asarray(np.unique(levels, return_inverse=True)[1].reshape(levels.shape))


def _order_levels(graph: Graph, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the column (nodes,) of each node and its height in it, near the node's consumers.

    Levels are processed from right to left, because a node is placed at the mean height of its
    consumers (the barycentre heuristic of Sugiyama, Tagawa and Toda, 1981). A level with many nodes
    takes several columns.
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
