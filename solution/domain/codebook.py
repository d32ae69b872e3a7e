"""Layout configurations, each distinct layout stored once.

A config tensor (configs, nodes, 18) float32 repeats few distinct rows. A codebook holds, for each
configurable node, the layouts that it takes, and per configuration and node a code of one or two
bytes: 36 to 72 times smaller. Identical configurations share one row of codes. The pairs (node,
layout) are few as well, so a model can embed each of them once instead of once a configuration.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.duplicates import Distinct, deduplicate

TABLE_ENTRIES = 1 << 23  # (node, layout) entries of a table
BLOCK_ENTRIES = 1 << 18  # (configuration, node) entries that are worked on at once
SLOTS, NUM_TENSORS = vocabulary.MAX_RANK, len(vocabulary.LAYOUT_TENSORS)
TOKENS = vocabulary.NUM_LAYOUT_TOKENS
LOWEST, HIGHEST = vocabulary.LAYOUT_UNSET, vocabulary.MAX_RANK - 1


class LayoutValueError(ValueError):
    """A value that no layout has; `index` is its (config, node, slot)."""

    def __init__(self, index: tuple[int, ...], value: float) -> None:
        super().__init__(f"layout slot {index} is {value}")
        self.index = index
        self.value = value


@dataclass(frozen=True, eq=False)
class Codebook:
    """The layouts of every configurable node, and which of them each configuration gives it."""

    layouts: np.ndarray  # (pairs, 18) int8: those of the first configurable node, the second, ...
    starts: np.ndarray  # (configurable + 1,) int64: node n has layouts[starts[n]:starts[n + 1]]
    codes: np.ndarray  # (distinct configs, configurable) uint8, 16 or 32: which of its node's
    rows: np.ndarray  # (configs,) integers: the row of `codes` of each configuration

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.setflags(write=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """That of the config tensor: (configs, configurable, 18)."""
        return len(self.rows), self.codes.shape[1], vocabulary.NUM_LAYOUT_FEATURES

    @property
    def node(self) -> np.ndarray:
        """The position (pairs,) among the configurable nodes of each pair's node."""
        return np.repeat(np.arange(self.codes.shape[1]), np.diff(self.starts))

    @property
    def distinct(self) -> Distinct:
        """Which configurations differ; the distinct ones stand in the order of the codes."""
        return Distinct(np.unique(self.rows, return_index=True)[1], self.rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """Its four arrays by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def pairs(self, rows: np.ndarray | slice) -> np.ndarray:
        """Positions in `layouts` (k, configurable) int64 for the k `rows` of codes.

        Only these rows are read, which matters where `codes` is a memory-mapped file.
        """
        return self.codes[rows] + self.starts[:-1]

    def expand(self) -> np.ndarray:
        """The config tensor (configs, configurable, 18) int8 again."""
        return self.layouts[self.pairs(self.rows)]

    def select(self, configs: np.ndarray) -> "Codebook":
        """Only the configurations at the positions `configs` (k,); the layouts stay."""
        used, rows = np.unique(self.rows[configs], return_inverse=True)
        # All of them: the codes stay where they are, in memory or in a file.
        codes = self.codes if len(used) == len(self.codes) else self.codes[used]
        return dataclasses.replace(self, codes=codes, rows=rows.astype(np.int64))


def encode(configs: np.ndarray) -> Codebook:
    """The codebook of a whole config tensor (configs, configurable, 18) of numbers -1 ... 5."""
    encoder = LayoutEncoder(*configs.shape[:2])
    step = max(1, BLOCK_ENTRIES // max(1, configs.shape[1]))
    for first in range(0, len(configs), step):
        encoder.add(configs[first : first + step])
    return encoder.finish()


class LayoutEncoder:
    """Builds a codebook from blocks of the config tensor, which is never whole in memory."""

    def __init__(self, num_configs: int, num_nodes: int) -> None:
        self._table = KeyTable()
        self._ids = np.empty((num_configs, num_nodes), np.uint16)  # numbers of the global layouts
        self._filled = 0

    def add(self, block: np.ndarray) -> None:
        """Take the next configurations (k, configurable, 18).

        Raises LayoutValueError where a value is not a whole number from -1 to 5.
        """
        _check_values(block, self._filled)
        ids = self._table.number(_pack(block))
        if len(self._table.keys) > np.iinfo(self._ids.dtype).max:
            self._ids = self._ids.astype(np.uint32)
        last = self._filled + len(block)
        self._ids[self._filled : last] = ids.reshape(block.shape[:2])
        self._filled = last

    def finish(self) -> Codebook:
        """The codebook of everything that was added; it does not depend on the blocks."""
        distinct = deduplicate(self._ids)
        ids = self._ids if len(distinct.first) == len(self._ids) else self._ids[distinct.first]
        del self._ids
        order = np.argsort(self._table.keys)
        # A table of nodes and all layouts must not grow with both.
        step = max(1, TABLE_ENTRIES // max(1, len(order)))
        parts = [_number_layouts(ids[:, n : n + step], order) for n in range(0, ids.shape[1], step)]
        codes, positions, counts = zip(*parts, strict=True) if parts else ([ids], [order[:0]], [])
        return Codebook(
            layouts=_unpack(self._table.keys[np.concatenate(positions)]),
            starts=np.cumsum(np.concatenate([[0], *counts])).astype(np.int64),
            codes=np.concatenate(codes, axis=1),
            rows=distinct.inverse,
        )


def _number_layouts(
    ids: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the layouts of each node (a column of `ids`) from 0 in `order`.

    Returns:
        The numbers (configs, nodes), as narrow as they can be; the positions (pairs,) of each
        node's layouts, node after node; and how many each node has (nodes,).
    """
    used = np.zeros((ids.shape[1], len(order)), bool)  # node, layout
    columns = np.arange(ids.shape[1]) * len(order)
    for block in _blocks(ids):
        used.ravel()[block + columns] = True
    ordered = used[:, order]
    number = np.empty(used.shape, np.int32)
    number[:, order] = ordered.cumsum(axis=1, dtype=np.int32) - 1
    counts = ordered.sum(axis=1)
    numbers = np.empty(ids.shape, np.min_scalar_type(max(0, counts.max(initial=0) - 1)))
    for block, target in zip(_blocks(ids), _blocks(numbers), strict=True):
        target[...] = number.ravel()[block + columns]
    return numbers, order[np.nonzero(ordered)[1]], counts


class KeyTable:
    """Numbers distinct integers from 0, the known ones first.

    An open-addressing hash table with linear probing (Knuth, "The Art of Computer Programming",
    volume 3, 6.4), a whole array at a time: four times as fast as sorting.
    """

    EMPTY = -1
    MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio

    def __init__(self) -> None:
        self.keys = np.empty(0, np.int64)
        self._rebuild()

    def number(self, keys: np.ndarray) -> np.ndarray:
        """The numbers (n,) int32 of `keys` (n,) int64; new keys are added."""
        numbers = self._find(keys)
        unknown = np.flatnonzero(numbers == self.EMPTY)
        if len(unknown):
            self.keys = np.concatenate([self.keys, np.unique(keys[unknown])])
            self._rebuild()
            numbers[unknown] = self._find(keys[unknown])
        return numbers

    def _find(self, keys: np.ndarray) -> np.ndarray:
        slots = self._slots(keys)
        numbers = self._numbers[slots]
        other = np.flatnonzero((self._keys[slots] != keys) & (numbers != self.EMPTY))
        while len(other):
            slots[other] = (slots[other] + 1) & self._mask
            numbers[other] = self._numbers[slots[other]]
            wrong = self._keys[slots[other]] != keys[other]
            other = other[wrong & (numbers[other] != self.EMPTY)]
        return numbers

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """Where to begin to look: the highest bits of a product (multiplicative hashing)."""
        return ((keys.view(np.uint64) * self.MULTIPLIER) >> self._shift).view(np.int64)

    def _rebuild(self) -> None:
        bits = max(10, int(4 * len(self.keys)).bit_length())  # at most a quarter is taken
        self._shift, self._mask = np.uint64(64 - bits), (1 << bits) - 1
        self._numbers = np.full(1 << bits, self.EMPTY, np.int32)
        self._keys = np.zeros(1 << bits, np.int64)
        waiting, slots = np.arange(len(self.keys)), self._slots(self.keys)
        while len(waiting):
            free = waiting[self._numbers[slots[waiting]] == self.EMPTY]
            self._numbers[slots[free]] = free  # of several, one stays
            waiting = waiting[self._numbers[slots[waiting]] != waiting]
            slots[waiting] = (slots[waiting] + 1) & self._mask
        taken = self._numbers != self.EMPTY
        self._keys[taken] = self.keys[self._numbers[taken]]


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, BLOCK_ENTRIES // max(1, rows.shape[1]))
    return (rows[first : first + step] for first in range(0, len(rows), step))


def _check_values(block: np.ndarray, first: int) -> None:
    if block.size == 0:
        return
    inside = block.min() >= LOWEST and block.max() <= HIGHEST  # False for NaN
    if inside and (block.dtype.kind in "iu" or not (np.rint(block) != block).any()):
        return
    wrong = ~((block >= LOWEST) & (block <= HIGHEST) & (np.rint(block) == block))
    config, *rest = (int(position) for position in np.argwhere(wrong)[0])
    raise LayoutValueError((first + config, *rest), float(block[(config, *rest)]))


# The six slots of a tensor, shifted to 0 ... 6, are a number in base 7 below 2^24, which float32
# sums exactly; three of them one below 7^18 < 2^53, which float64 does.
_POWERS = (float(TOKENS) ** np.arange(SLOTS)[::-1]).astype(np.float32)
_TENSORS = float(TOKENS) ** (SLOTS * np.arange(NUM_TENSORS)[::-1])
_SHIFT = (TOKENS**vocabulary.NUM_LAYOUT_FEATURES - 1) // (TOKENS - 1)  # a 1 in every slot


def _pack(block: np.ndarray) -> np.ndarray:
    """Read the 18 values of each layout (k, configurable, 18), shifted, as one number in base 7."""
    tensors = block.reshape(-1, SLOTS).astype(np.float32, copy=False) @ _POWERS
    keys = tensors.reshape(-1, NUM_TENSORS).astype(np.float64) @ _TENSORS
    return keys.astype(np.int64) + _SHIFT


def _unpack(keys: np.ndarray) -> np.ndarray:
    slots = np.empty((len(keys), vocabulary.NUM_LAYOUT_FEATURES), np.int8)
    for slot in reversed(range(vocabulary.NUM_LAYOUT_FEATURES)):
        keys, slots[:, slot] = np.divmod(keys, TOKENS)
    return slots - np.int8(1)
