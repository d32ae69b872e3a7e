"""Describe a configuration in words: its tile sizes, or the layouts that the user sets."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from solution.domain import vocabulary
from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.features.layout.tensors import FEATURES, describe_layouts
from solution.features.preparation import repair_padding

SHOWN = 3  # maximum number of nodes named in a short description
SAME = "as the compiler has it"


# a node, one of its tensors, the tensor's layout from minor to major
AskedFor = tuple[int, str, list[int]]


def describe_configs(graph: Graph, configs: np.ndarray, *, whole: bool = False) -> list[str]:
    """Return a line of text for each configuration at the positions `configs` (k,): all layouts if
    `whole`, otherwise a few layouts that differ from the compiler's default."""
    if graph.collection.kind == "tile":
        return [_describe_tile(row) for row in graph.tiles[configs]]
    if graph.options is not None:
        return [describe_options(row, graph.option_choices) for row in graph.options[configs]]
    if whole:
        return [_describe_all(graph, asked) for asked in list_layouts(graph, configs)]
    return _describe_layouts(graph, graph.layouts, configs)


def list_layouts(graph: Graph, configs: np.ndarray) -> list[list[AskedFor]]:
    """Return the layouts that each of the configurations `configs` (k,) of a layout graph sets."""
    layouts = graph.layouts
    # the node of each (node, layout) pair in the codebook
    nodes = graph.configurable[layouts.node].tolist()
    asked = [list_given(*pair) for pair in zip(nodes, layouts.layouts, strict=True)]
    return [[one for pair in taken for one in asked[pair]]
            for taken in layouts.pairs(layouts.rows[configs])]  # fmt: skip


def list_given(node: int, layout: np.ndarray) -> list[AskedFor]:
    """Return the layouts that a configuration sets at one node; `layout` is (18,) or (3, 6)."""
    slots = layout.reshape(len(vocabulary.LAYOUT_TENSORS), vocabulary.MAX_RANK)
    orders = [[int(axis) for axis in order if axis != vocabulary.LAYOUT_UNSET] for order in slots]
    pairs = zip(vocabulary.LAYOUT_TENSORS, orders, strict=True)
    return [(node, tensor, order) for tensor, order in pairs
            if order]  # fmt: skip


def _describe_all(graph: Graph, asked: Sequence[AskedFor]) -> str:
    """Return layouts in words, as in `dot 4 output {1,0} kernel {0,1}; copy 7 input {0,1}`."""
    words: dict[int, list[str]] = {}
    for node, tensor, order in asked:
        words.setdefault(node, [name_node(graph, node)]).append(spell(tensor, order))
    return "; ".join(map(" ".join, words.values())) or SAME


def name_node(graph: Graph, node: int) -> str:
    """Return a node's opcode and number, such as `dot 4`."""
    return f"{vocabulary.OPCODES.get(int(graph.node_opcodes[node]), 'node')} {node}"


def spell(tensor: str, order: Iterable[int]) -> str:
    """Return a tensor and its layout, such as `output {1,0}`."""
    return f"{tensor} {{{','.join(map(str, order))}}}"


def describe_options(
    row: np.ndarray, options: Mapping[str, tuple[str, ...]] = vocabulary.OPTION_CHOICES
) -> str:
    """Describe the compile options that differ from the defaults; `options`: values by name."""
    words = [
        f"{name} {choices[choice]}"
        for (name, choices), choice in zip(options.items(), row, strict=True)
        if choice
    ]
    return ", ".join(words) or SAME


def _describe_tile(row: np.ndarray) -> str:
    """Return the tile sizes of each block of features, without zeros at the end, in words."""
    words = []
    for name, block in vocabulary.TILE_BLOCKS.items():
        sizes = np.trim_zeros(row[block][: vocabulary.MAX_RANK].astype(np.int64), "b")
        if len(sizes):
            words.append(f"{name} {'x'.join(map(str, sizes))}")
    return ", ".join(words) or "no tile"


def _describe_layouts(graph: Graph, layouts: Codebook, configs: np.ndarray) -> list[str]:
    """Return a line of text for each configuration at the positions `configs` (k,): the first SHOWN
    nodes that have a set layout which differs from the compiler's default, with these layouts."""
    if not len(graph.configurable):
        return [SAME] * len(configs)
    described = describe_layouts(repair_padding(graph), layouts)
    columns = [FEATURES.index(f"{tensor}_changed") for tensor in vocabulary.LAYOUT_TENSORS]
    # (pairs, tensors) bool: True if the tensor's layout differs from the compiler's
    changed: np.ndarray = described[:, columns] > 0
    differs = np.flatnonzero(changed.any(axis=1))
    # (pairs,) bool: True if the layout of any tensor is set
    given = (layouts.layouts != vocabulary.LAYOUT_UNSET).any(axis=1)
    lines = []
    for taken in layouts.pairs(layouts.rows[configs]):
        pairs = taken[np.isin(taken, differs)]
        shown = [_describe_pair(graph, layouts, pair, changed[pair]) for pair in pairs[:SHOWN]]
        more = [f"{len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else []
        lines.append("; ".join([*shown, *more]) or _describe_same(graph, given[taken]))
    return lines


def _describe_same(graph: Graph, given: np.ndarray) -> str:
    """Say that no set layout differs from the compiler's default, and at which nodes layouts are
    set: `given` (configurable,) bool, True if the node's layout is set."""
    asked = graph.configurable[given]
    if not len(asked):
        return SAME
    where = name_node(graph, asked[0]) if len(asked) == 1 else f"{len(asked)} nodes"
    return f"{SAME}, asked for at {where}"


def _describe_pair(graph: Graph, layouts: Codebook, pair: int, changed: np.ndarray) -> str:
    """Return a node's changed layouts in words, as in `dot 4 output {1,0}`, minor to major."""
    node = graph.configurable[layouts.node[pair]]
    slots = layouts.layouts[pair].reshape(len(vocabulary.LAYOUT_TENSORS), vocabulary.MAX_RANK)
    words = [
        spell(tensor, [axis for axis in order if axis != vocabulary.LAYOUT_UNSET])
        for tensor, order, is_changed in zip(vocabulary.LAYOUT_TENSORS, slots, changed, strict=True)
        if is_changed
    ]
    return f"{name_node(graph, node)} {' '.join(words)}"
