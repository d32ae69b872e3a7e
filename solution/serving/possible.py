"""Find impossible layouts, which users' data and search tools may contain.

The layout of a tensor has six slots. They list axes, from minor to major; unused slots are -1. Not
all axes of the tensor need to be listed. A layout is impossible if an axis repeats, follows a -1,
or is not below the tensor's rank.
"""

import numpy as np

from solution.domain.graph import Graph, PerGraph
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, MAX_RANK, NUM_LAYOUT_FEATURES
from solution.features.operations import tensor_ranks
from solution.serving.words import name_node, spell
from solution.system.errors import InputError


def check_layouts(graph: Graph, configs: np.ndarray) -> None:
    """Raise InputError if one of `configs` (k, configurable, 18) has an impossible layout."""
    nodes = np.tile(np.arange(configs.shape[1]), len(configs))
    wrong = _mark(graph, nodes, configs.reshape(-1, NUM_LAYOUT_FEATURES))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        config, node = divmod(row, configs.shape[1])
        words = _describe(graph, node, configs[config, node], wrong[row])
        raise InputError(f"{graph.name}: configuration {config} {words}.")


def describe_impossible(graph: Graph) -> str:
    """Describe the first configuration with an impossible layout; "" if there is none."""
    if graph.collection.kind != "layout":
        return ""
    book, nodes = graph.layouts, graph.layouts.node
    wrong = _mark(graph, nodes, book.layouts)
    pairs = np.flatnonzero(wrong.any(axis=1))
    first, pair = graph.num_configs, -1
    # for each impossible (node, layout) pair, find the first configuration that has it
    for one in pairs.tolist():
        taken = book.codes[:, nodes[one]] == one - book.starts[nodes[one]]
        configs = np.flatnonzero(taken[book.rows])
        if len(configs) and configs[0] < first:
            first, pair = int(configs[0]), one
    if pair < 0:  # no impossible layout, or no configuration has one
        return ""
    words = _describe(graph, int(nodes[pair]), book.layouts[pair], wrong[pair])
    others = f" (of {len(pairs)} such layouts)" if len(pairs) > 1 else ""
    return f"configuration {first} {words}{others}."


def _find_bounds(graph: Graph) -> np.ndarray:
    """Return upper bounds (configurable, 3) on the ranks of output, input and kernel. Which operand
    is the input or the kernel is not known, so both get the largest operand's rank. A rank of 0
    counts as unknown: the bound is MAX_RANK."""
    ranks = tensor_ranks(graph)
    read = np.zeros_like(ranks)
    np.maximum.at(read, graph.edges[:, 0], ranks[graph.edges[:, 1]])
    found = np.stack([ranks, read, read], axis=1)[graph.configurable]
    return np.where(found > 0, found, MAX_RANK)


_bounds = PerGraph(_find_bounds)


def _mark(graph: Graph, nodes: np.ndarray, layouts: np.ndarray) -> np.ndarray:
    """Return a mask (n, 3) of output, input and kernel: True for tensors with an impossible layout.
    `nodes` (n,): positions among the configurable nodes. `layouts` (n, 18): a layout of all three
    tensors for each node."""
    slots = layouts.reshape(-1, len(LAYOUT_TENSORS), MAX_RANK)
    wrong = np.zeros(slots.shape[:2], bool)
    # In sorted slots, equal set slots are a repeated axis; a set slot after an unset one is a gap.
    rows, tensors = np.nonzero((slots != LAYOUT_UNSET).any(axis=2))
    given = slots[rows, tensors]
    is_set, ordered = given != LAYOUT_UNSET, np.sort(given, axis=1)
    repeats = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != LAYOUT_UNSET)
    gaps = is_set[:, 1:] & ~is_set[:, :-1]
    beyond = ordered[:, -1] >= _bounds(graph)[nodes[rows], tensors]
    wrong[rows, tensors] = repeats.any(axis=1) | gaps.any(axis=1) | beyond
    return wrong


def _describe(graph: Graph, node: int, layout: np.ndarray, wrong: np.ndarray) -> str:
    """Return words for an error message: the configurable `node`, and the first tensor whose layout
    is impossible. `layout`: (18,) of all three tensors; `wrong`: (3,), see _mark."""
    tensor = int(np.argmax(wrong))
    slots = layout.reshape(len(LAYOUT_TENSORS), MAX_RANK)[tensor]
    last = int(np.flatnonzero(slots != LAYOUT_UNSET)[-1])
    most = int(_bounds(graph)[node, tensor]) - 1
    asked = spell(LAYOUT_TENSORS[tensor], slots[: last + 1].tolist())
    return (
        f"gives {name_node(graph, int(graph.configurable[node]))} the {asked}, which no tensor can "
        f"have: expected axes of 0 to {most}, each once at most, and -1 only after them"
    )
