"""Draw a graph: its operations from inputs to output, and how its runtimes spread."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODES
from solution.system.files import replace_file
from solution.system.terminal import escape

MAX_COLOURS = 7
REST_COLOUR = "#b8b8b8"
MAX_LABELLED_NODES = 60
LEAST_SPREAD = 1e-9  # below it, runtimes are equal


def draw_graph(graph: Graph, path: Path) -> None:
    """Write the picture of a graph as PNG."""
    save_figure(make_figure(graph), path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    with replace_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in another script has boxes
        figure.savefig(temporary, dpi=130, format="png")


def make_figure(graph: Graph) -> Figure:
    """The program with operands left of consumers, and a histogram of its runtimes."""
    panels = 1 if graph.runtimes is None else 2
    figure = Figure(figsize=(12, 4 + 3.2 * panels), layout="constrained")
    axes = figure.subplots(panels, 1, squeeze=False, height_ratios=[2.6, 1][:panels])
    _draw_program(graph, axes[0, 0])
    if graph.runtimes is not None:
        _draw_runtimes(graph, axes[1, 0])
    return figure


def show_name(graph: Graph) -> str:
    """The graph's name in a picture: it is no formula and moves no cursor."""
    return escape(graph.name).replace("$", r"\$")


def node_depths(graph: Graph) -> np.ndarray:
    """The longest way (nodes,) from an input to each node; nodes on or behind a cycle have 0."""
    waiting = np.bincount(graph.edges[:, 0], minlength=graph.num_nodes)
    depths = np.zeros(graph.num_nodes, np.int64)
    consumers, producers = graph.edges[np.argsort(graph.edges[:, 1], kind="stable")].T
    ready = list(np.flatnonzero(waiting == 0))
    while ready:
        node = ready.pop()
        first, last = np.searchsorted(producers, [node, node + 1])
        for consumer in consumers[first:last]:
            depths[consumer] = max(depths[consumer], depths[node] + 1)
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    return np.where(waiting > 0, 0, depths)


def _draw_program(graph: Graph, axes: Axes) -> None:
    places = _place_nodes(graph)
    lines = places[graph.edges[:, ::-1]]
    alpha = float(np.clip(200 / max(1, len(lines)), 0.01, 0.2))  # many edges must not hide nodes
    axes.add_collection(LineCollection(lines, colors="black", alpha=alpha, linewidths=0.6))
    size = float(np.clip(9000 / graph.num_nodes, 4, 90))
    for label, members, style in _node_groups(graph):
        x, y = places[members].T
        scale = 2.2 if "edgecolors" in style else 1
        axes.scatter(x, y, s=scale * size, label=f"{label} ({members.sum():,})", **style)
    if graph.num_nodes <= MAX_LABELLED_NODES:
        for (x, y), opcode in zip(places, graph.node_opcodes, strict=True):
            axes.text(x, y + 0.25, OPCODES[int(opcode)], ha="center", fontsize=7)
    axes.set_title(f"{graph.collection.name}:{show_name(graph)}: {graph.num_nodes:,} operations")
    axes.set_xlabel("longest way from an input (operations)")
    axes.set_yticks([])
    axes.margins(0.06, 0.12)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)


def _place_nodes(graph: Graph) -> np.ndarray:
    """Places (nodes, 2): depth to the right, nodes of the same depth above each other."""
    depths = node_depths(graph)
    heights = np.zeros(graph.num_nodes)
    for depth in np.unique(depths):
        members = np.flatnonzero(depths == depth)
        heights[members] = np.arange(len(members)) - (len(members) - 1) / 2
    return np.stack([depths, heights], axis=1)


def _node_groups(graph: Graph) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """Label, members (nodes,) and style: the frequent opcodes, the rest, the configurable."""
    opcodes, counts = np.unique(graph.node_opcodes, return_counts=True)
    named = opcodes[np.argsort(-counts, kind="stable")][:MAX_COLOURS]
    for colour, opcode in enumerate(named):
        members = graph.node_opcodes == opcode
        yield OPCODES[int(opcode)], members, {"color": f"C{colour}", "zorder": 2}
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
