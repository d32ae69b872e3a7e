"""Which layouts no tensor can have, whatever the compiler does: data may hold them, and tools.

A tensor's six slots list axes, the minor one first, and -1 fills the rest. A list may be shorter
than the tensor's rank. No axis stands twice, none after a -1, and none is one that it lacks.
"""

import numpy as np

from solution.domain.graph import Graph
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, MAX_RANK, NUM_LAYOUT_FEATURES
from solution.features.padding import tensor_ranks
from solution.serving.words import name_node, spell
from solution.system.errors import InputError


def check_layouts(graph: Graph, configs: np.ndarray) -> None:
    """InputError for the first of `configs` (k, configurable, 18) with an impossible layout."""
    nodes = np.tile(np.arange(configs.shape[1]), len(configs))
    wrong = _mark(graph, nodes, configs.reshape(-1, NUM_LAYOUT_FEATURES))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        config, node = divmod(row, configs.shape[1])
        words = _describe(graph, node, configs[config, node], wrong[row])
        raise InputError(f"{graph.name}: configuration {config} {words}.")


def describe_impossible(graph: Graph) -> str:
    """What the first configuration with an impossible layout asks for; empty where all can be.

    Each distinct layout of a node is looked at once.
    """
    if graph.collection.kind != "layout":
        return ""
    book, nodes = graph.layouts, graph.layouts.node
    wrong = _mark(graph, nodes, book.layouts)
    pairs = np.flatnonzero(wrong.any(axis=1))
    first, pair = graph.num_configs, -1
    for one in pairs.tolist():
        taken = book.codes[:, nodes[one]] == one - book.starts[nodes[one]]
        configs = np.flatnonzero(taken[book.rows])
        if len(configs) and configs[0] < first:
            first, pair = int(configs[0]), one
    if pair < 0:  # none, or those that have it were left out
        return ""
    words = _describe(graph, int(nodes[pair]), book.layouts[pair], wrong[pair])
    others = f" (of {len(pairs)} such layouts)" if len(pairs) > 1 else ""
    return f"configuration {first} {words}{others}."


def _find_bounds(graph: Graph) -> np.ndarray:
    """The most axes (configurable, 3) of each tensor, MAX_RANK where nothing says it.

    Which producer is the input and which the kernel is not certain: both have at most the rank of
    the largest.
    """
    ranks = tensor_ranks(graph)
    read = np.zeros_like(ranks)
    np.maximum.at(read, graph.edges[:, 0], ranks[graph.edges[:, 1]])
    found = np.stack([ranks, read, read], axis=1)[graph.configurable]
    return np.where(found > 0, found, MAX_RANK)


_bounds = PerGraph(_find_bounds)


def _mark(graph: Graph, nodes: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Which tensors (n, 3) bool of `nodes` (n,), positions, no such `layouts` (n, 18) may have."""
    slots = layouts.reshape(-1, len(LAYOUT_TENSORS), MAX_RANK)
    wrong = np.zeros(slots.shape[:2], bool)
    rows, tensors = np.nonzero((slots != LAYOUT_UNSET).any(axis=2))  # most are left as they are
    given = slots[rows, tensors]
    is_set, ordered = given != LAYOUT_UNSET, np.sort(given, axis=1)
    repeats = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != LAYOUT_UNSET)
    gaps = is_set[:, 1:] & ~is_set[:, :-1]
    beyond = ordered[:, -1] >= _bounds(graph)[nodes[rows], tensors]
    wrong[rows, tensors] = repeats.any(axis=1) | gaps.any(axis=1) | beyond
    return wrong


def _describe(graph: Graph, node: int, layout: np.ndarray, wrong: np.ndarray) -> str:
    """What the layout (18,) of a node, a position, asks for in the first of its `wrong` (3,)."""
    tensor = int(np.argmax(wrong))
    slots = layout.reshape(len(LAYOUT_TENSORS), MAX_RANK)[tensor]
    last = int(np.flatnonzero(slots != LAYOUT_UNSET)[-1])
    most = int(_bounds(graph)[node, tensor]) - 1
    asked = spell(LAYOUT_TENSORS[tensor], slots[: last + 1].tolist())
    return (
        f"gives {name_node(graph, int(graph.configurable[node]))} the {asked}, which no tensor can "
        f"have: expected axes of 0 to {most}, each once at most, and -1 only after them"
    )
