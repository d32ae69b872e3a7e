"""The features of the LightGBM study, for a tile and for a layout configuration.

    tile      140 node features, mean over the nodes, and the 24 numbers of the tile
    layout    the padding of all tensors with a layout, how often each value stands in the
              configuration's layout features, and how many nodes are convolutions, dots, reshapes
    either    optionally, the share of the nodes that have each opcode: of the nodes that pruning
              keeps, or of these and, separately, of those that it drops

The study counts 23 numbers of a tile and does not say which; the files have 24, including sums and
products. Unused slots of node features hold -1, as everywhere in this project; the study has the
files' 0 (solution.features.preparation).

Padding is that of the register tile, 128 by 8: the minor-most dimension of an output is padded to
a multiple of 128, the next one to a multiple of 8. If a configuration leaves a node to the
compiler, the node has the program's layout. Nodes whose layout no configuration sets have the same
padding in all of them and are left out. In the competition every convolution, dot and reshape is
configurable, so configurable ones are counted.

Source: "Performance Models for Deep Neural Network Training" (CS243, Harvard, 2023), section III.
"""

from functools import cache

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import (
    CONFIGURABLE_OPCODES,
    LANES,
    LAYOUT_UNSET,
    MAX_RANK,
    OPCODE_IDS,
    OPCODE_NAMES,
    SUBLANES,
    TILE_BLOCKS,
)
from solution.features.column import Feature, numbered
from solution.features.layout.tensors import find_tensors
from solution.features.preparation import neighbourhood

OPCODE_CHOICES = (None, "kept", "all")
PARTS = {None: (), "kept": ("kept",), "all": ("kept", "dropped")}
VALUES = range(LAYOUT_UNSET, MAX_RANK)  # the values of a layout feature
BLOCK_ENTRIES = 1 << 22  # (configuration, node) entries summed at once
SIZES = (*(f"bound_{place}" for place in range(MAX_RANK)), "sum", "product")

TILE = (
    *numbered("mean_feature", "mean over nodes", "node feature of the file", 140),
    *(Feature(f"{block}_{size}", "elements", "of the tile") for block in TILE_BLOCKS
      for size in SIZES),
)  # fmt: skip
LAYOUT = (
    Feature("padding", "elements", "added to the outputs of configurable nodes, to 128 by 8"),
    *(Feature(f"value_{value}", "share", "of all layout features of the configuration")
      for value in VALUES),
    *(Feature(f"{name}_nodes", "count", "configurable nodes") for name in CONFIGURABLE_OPCODES),
)  # fmt: skip


@cache
def features_of(kind: str, opcodes: str | None) -> tuple[Feature, ...]:
    """Return the columns' names for "layout" or "tile" graphs; `opcodes` is one of
    OPCODE_CHOICES."""
    names = (*OPCODE_NAMES.split(), "virtual")
    shares = tuple(
        Feature(f"{part}_{name}", "share", f"nodes that pruning {part}")
        for part in PARTS[opcodes]
        for name in names
    )
    return (*(TILE if kind == "tile" else LAYOUT), *shares)


def study_rows(graph: Graph, opcodes: str | None = None) -> np.ndarray:
    """Return the columns of features_of, a row for each distinct configuration: float32."""
    own = _tile_rows(graph) if graph.collection.kind == "tile" else _layout_rows(graph)
    shares = opcode_shares(graph, opcodes)
    return np.concatenate([own, np.tile(shares, (len(own), 1))], axis=1).astype(np.float32)


def opcode_shares(graph: Graph, opcodes: str | None) -> np.ndarray:
    """Return the opcode counts of each part as shares of all nodes (parts x 121,).

    The parts are the nodes that pruning keeps, and those that it drops. In a kernel, or in a graph
    that is already pruned, all nodes are kept.
    """
    is_kept = np.ones(graph.num_nodes, bool)
    if len(graph.configurable):
        is_kept = neighbourhood(graph, 1)
    shown = [graph.node_opcodes[is_kept == (part == "kept")] for part in PARTS[opcodes]]
    counts = [np.bincount(own, minlength=vocabulary.NUM_OPCODES) for own in shown]
    return np.concatenate([np.empty(0), *counts]) / graph.num_nodes


def _tile_rows(graph: Graph) -> np.ndarray:
    means = graph.node_features.mean(axis=0, dtype=np.float64)
    tiles = graph.tiles[graph.distinct.first]
    return np.concatenate([np.tile(means, (len(tiles), 1)), tiles], axis=1)


def _layout_rows(graph: Graph) -> np.ndarray:
    pairs = graph.layouts
    described = np.column_stack([padding_of_pairs(graph), count_values(pairs.layouts)])
    # Integers: their sums are exact, whatever the order of the nodes.
    step = max(1, BLOCK_ENTRIES // max(1, pairs.codes.shape[1]))
    blocks = [np.empty((0, described.shape[1]))]
    for first in range(0, len(pairs.codes), step):
        used = pairs.pairs(slice(first, first + step))  # (configs, configurable)
        block = np.zeros((len(used), described.shape[1]))
        for column in used.T:  # one node at a time, to bound memory
            block += described[column]
        blocks.append(block)
    sums = np.concatenate(blocks)
    entries = max(1, len(graph.configurable) * vocabulary.NUM_LAYOUT_FEATURES)
    opcodes = graph.node_opcodes[graph.configurable]
    counts = [(opcodes == OPCODE_IDS[name]).sum() for name in CONFIGURABLE_OPCODES]
    padding, values = sums[:, :1], sums[:, 1:] / entries
    return np.concatenate([padding, values, np.tile(counts, (len(sums), 1))], axis=1)


def count_values(layouts: np.ndarray) -> np.ndarray:
    """Return how often each of VALUES stands in each of `layouts` (pairs, 18): (pairs, 7)."""
    return np.stack([(layouts == value).sum(axis=1) for value in VALUES], axis=1)


def padding_of_pairs(graph: Graph) -> np.ndarray:
    """Return the padding elements (pairs,) float64 of the node's output for each (node, layout)
    pair."""
    pairs, tensors = graph.layouts, find_tensors(graph, "output")
    node, given = pairs.node, pairs.layouts[:, :MAX_RANK].astype(np.int64)
    order = np.where(given == LAYOUT_UNSET, tensors.layouts[node], given)
    sizes, ranks = tensors.sizes[node], tensors.ranks[node]
    row = np.arange(len(node))
    minor = sizes[row, order[:, 0]]
    second = np.where(ranks > 1, sizes[row, order[:, 1]], 1)
    elements = sizes.prod(axis=1).astype(np.float64)
    stored = _round_up(minor, LANES) * _round_up(second, SUBLANES)
    return elements / (minor * second) * stored - elements


def _round_up(sizes: np.ndarray, multiple: int) -> np.ndarray:
    return -(-sizes // multiple) * multiple
