"""Store each distinct layout once.

A config tensor (configs, nodes, 18) repeats few distinct rows. A codebook holds them once as int8,
and per configuration and node an index of one or two bytes: 36 times smaller than float32. The
pairs (node, layout) are few as well, so a model can embed each of them once instead of once for
every configuration.
"""

from dataclasses import dataclass

import numpy as np

from solution import vocabulary

BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True)
class Codebook:
    """Distinct layouts and who uses which."""

    layouts: np.ndarray  # (distinct, 18) int8
    index: np.ndarray  # (configs, configurable nodes) uint16, or uint32 where that is too small

    def expand(self) -> np.ndarray:
        """The config tensor (configs, configurable nodes, 18) int8 again."""
        return self.layouts[self.index]


@dataclass(frozen=True)
class NodeLayouts:
    """The distinct pairs of a configurable node and a layout that it takes."""

    node: np.ndarray  # (pairs,) position among the configurable nodes
    layouts: np.ndarray  # (pairs, 18) int8
    index: np.ndarray  # (configs, configurable nodes) int32 into the pairs


def build_codebook(configs: np.ndarray) -> Codebook:
    """Find the distinct layouts in `configs` (configs, configurable nodes, 18) int8, -1 ... 5."""
    shape = configs.shape[:2]
    keys = np.empty(shape, np.int64)
    step = max(1, BLOCK_ENTRIES // max(1, shape[1]))
    for first in range(0, shape[0], step):
        keys[first : first + step] = _pack(configs[first : first + step])
    distinct, index = np.unique(keys, return_inverse=True)
    narrow = np.uint16 if len(distinct) <= np.iinfo(np.uint16).max else np.uint32
    return Codebook(_unpack(distinct), index.reshape(shape).astype(narrow))


def pair_nodes_with_layouts(codebook: Codebook) -> NodeLayouts:
    """List every layout that each configurable node takes in some configuration, once."""
    nodes = np.arange(codebook.index.shape[1])
    keys = nodes * len(codebook.layouts) + codebook.index.astype(np.int64)
    distinct, index = np.unique(keys, return_inverse=True)
    node, layout = np.divmod(distinct, max(1, len(codebook.layouts)))
    return NodeLayouts(node, codebook.layouts[layout], index.reshape(keys.shape).astype(np.int32))


def _pack(configs: np.ndarray) -> np.ndarray:
    """Read the 18 values of a layout, shifted to 0 ... 6, as one number in base 7 (7^18 < 2^63)."""
    keys = np.zeros(configs.shape[:-1], np.int64)
    for slot in range(configs.shape[-1]):
        keys = keys * vocabulary.NUM_LAYOUT_TOKENS + (configs[..., slot] + 1)
    return keys


def _unpack(keys: np.ndarray) -> np.ndarray:
    slots = np.empty((len(keys), vocabulary.NUM_LAYOUT_FEATURES), np.int8)
    for slot in reversed(range(vocabulary.NUM_LAYOUT_FEATURES)):
        keys, slots[:, slot] = np.divmod(keys, vocabulary.NUM_LAYOUT_TOKENS)
    return slots - np.int8(1)
