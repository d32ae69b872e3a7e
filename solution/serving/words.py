"""What a configuration is, in words: its tile sizes, or the layouts that are not the compiler's."""

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    OPCODES,
    OPTION_CHOICES,
    TILE_BLOCKS,
)
from solution.features.layout.tensors import FEATURES, describe_layouts
from solution.features.padding import repair_padding

SHOWN = 3  # nodes
SAME = "as the compiler has it"


def describe_configs(graph: Graph, configs: np.ndarray) -> list[str]:
    """A line for each of the configurations at the positions `configs` (k,)."""
    if graph.collection.kind == "tile":
        return [_describe_tile(row) for row in graph.tiles[configs]]
    if graph.options is not None:
        return [_describe_options(row) for row in graph.options[configs]]
    return _describe_layouts(graph, graph.layouts, configs)


def _describe_options(row: np.ndarray) -> str:
    """The compile options that are not the compiler's own choice."""
    words = [
        f"{name} {choices[choice]}"
        for (name, choices), choice in zip(OPTION_CHOICES.items(), row, strict=True)
        if choice
    ]
    return ", ".join(words) or SAME


def _describe_tile(row: np.ndarray) -> str:
    """The sizes of each block up to its last that is not 0; blocks of zeros are not set."""
    words = []
    for name, block in TILE_BLOCKS.items():
        sizes = np.trim_zeros(row[block][:MAX_RANK].astype(np.int64), "b")
        if len(sizes):
            words.append(f"{name} {'x'.join(map(str, sizes))}")
    return ", ".join(words) or "no tile"


def _describe_layouts(graph: Graph, layouts: Codebook, configs: np.ndarray) -> list[str]:
    """Which configurable nodes get another layout than they have in the compiler's program.

    A layout that is not given is left to the compiler and differs in nothing.
    """
    if not len(graph.configurable):
        return [SAME] * len(configs)
    described = describe_layouts(repair_padding(graph), layouts)
    columns = [FEATURES.index(f"{tensor}_changed") for tensor in LAYOUT_TENSORS]
    changed: np.ndarray = described[:, columns] > 0  # (pairs, tensors)
    differs = np.flatnonzero(changed.any(axis=1))
    given = (layouts.layouts != LAYOUT_UNSET).any(axis=1)  # (pairs,)
    lines = []
    for taken in layouts.pairs(layouts.rows[configs]):
        pairs = taken[np.isin(taken, differs)]
        shown = [_describe_pair(graph, layouts, pair, changed[pair]) for pair in pairs[:SHOWN]]
        more = [f"{len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else []
        lines.append("; ".join([*shown, *more]) or _describe_same(int(given[taken].sum())))
    return lines


def _describe_same(fixed: int) -> str:
    """That nothing differs, and whether the compiler is asked for what it would do anyway."""
    if not fixed:
        return SAME
    return f"{SAME}, asked for at {fixed} node{'s' if fixed > 1 else ''}"


def _describe_pair(graph: Graph, layouts: Codebook, pair: int, changed: np.ndarray) -> str:
    """Such as `dot 4 output {1,0}`: opcode and number of the node, layouts minor to major."""
    node = graph.configurable[layouts.node[pair]]
    slots = layouts.layouts[pair].reshape(len(LAYOUT_TENSORS), MAX_RANK)
    words = [
        f"{tensor} {{{','.join(str(slot) for slot in own if slot != LAYOUT_UNSET)}}}"
        for tensor, own, is_changed in zip(LAYOUT_TENSORS, slots, changed, strict=True)
        if is_changed
    ]
    return f"{OPCODES.get(int(graph.node_opcodes[node]), 'node')} {node} {' '.join(words)}"
