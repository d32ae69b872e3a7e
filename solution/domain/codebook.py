"""Store layout configurations compactly: each distinct layout of a node once.

A config tensor (configs, nodes, 18) float32 repeats few distinct rows. A codebook holds, for each
configurable node, the layouts that it takes, and per configuration and node a code of one or two
bytes: 36 to 72 times smaller. Identical configurations share one row of codes. The pairs (node,
layout) are few as well, so a model can embed each pair once instead of once per configuration.

A config tensor is encoded one block of configurations at a time:

block ──▶ 18 numbers as one key ──▶ number of the layout ──▶ number among its node's layouts
          base 7, exact            KeyTable: all nodes       after the last block
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary

# maximum number of (configuration, node) entries that are counted in one block
COUNTED_ENTRIES = 1 << 22
# 2^64 over the golden ratio
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# odd constants of splitmix64
FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
LOWEST, HIGHEST = vocabulary.LAYOUT_UNSET, vocabulary.MAX_RANK - 1


@dataclass(frozen=True)
class Distinct:
    """Indices of the distinct configurations, and the distinct one that each configuration equals.

    `configs[first]` are the distinct configurations, in order of first appearance (for a codebook,
    in the order of its rows of codes). `configs[first][inverse]` equals `configs`; if `scores` has
    one score per distinct configuration, `scores[inverse]` has one per configuration.
    """

    first: np.ndarray  # (distinct,) int64: the first configuration that equals each distinct one
    inverse: np.ndarray  # (configs,) int64: index of each configuration among the distinct ones

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean (distinct,) of `values` (configs,) over identical configurations."""
        return np.bincount(self.inverse, weights=values) / np.bincount(self.inverse)


def deduplicate(configs: np.ndarray) -> Distinct:
    """Group identical rows of `configs` (configs, ...) by a cryptographic hash of their bytes."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(len(configs), np.int64)
    for index, row in enumerate(np.ascontiguousarray(configs)):
        digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        if digest not in seen:
            seen[digest] = len(first)
            first.append(index)
        inverse[index] = seen[digest]
    return Distinct(np.array(first, np.int64), inverse)


@dataclass(frozen=True, eq=False)
class Codebook:
    """The layouts that each configurable node takes, and codes for the layout that it has in each
    configuration. A pair is a configurable node and one of its layouts."""

    # (pairs, 18) int8: the layouts of the first configurable node, then of the second, ...
    layouts: np.ndarray
    # (configurable + 1,) int64: node n has layouts[starts[n]:starts[n + 1]]
    starts: np.ndarray
    # (distinct configs, configurable) uint8, 16 or 32: index among the node's layouts
    codes: np.ndarray
    rows: np.ndarray  # (configs,) integers: the row of `codes` of each configuration

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.setflags(write=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the config tensor: (configs, configurable, 18)."""
        return len(self.rows), self.codes.shape[1], vocabulary.NUM_LAYOUT_FEATURES

    @property
    def node(self) -> np.ndarray:
        """The index (pairs,) of each pair's node among the configurable nodes."""
        return np.repeat(np.arange(self.codes.shape[1]), np.diff(self.starts))

    @property
    def distinct(self) -> Distinct:
        """The distinct configurations, in the order of the codes."""
        return Distinct(np.unique(self.rows, return_index=True)[1], self.rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """The four arrays of the codebook: {name of the field: array}."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def pairs(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the pairs (k, configurable) int64, as indices into `layouts`, of k `rows` of
        `codes`. Only these rows are read, which matters if `codes` is a memory-mapped file."""
        return self.codes[rows] + self.starts[:-1]

    def expand(self) -> np.ndarray:
        """Return the whole config tensor (configs, configurable, 18) int8."""
        return self.layouts[self.pairs(self.rows)]

    def select(self, configs: np.ndarray) -> "Codebook":
        """Return the codebook of the configurations `configs` (k,); all layouts are kept."""
        used, rows = np.unique(self.rows[configs], return_inverse=True)
        # If all distinct configurations are selected, their codes are not copied.
        codes = self.codes if len(used) == len(self.codes) else self.codes[used]
        return dataclasses.replace(self, codes=codes, rows=rows.astype(np.int64))


def share_of_pairs(pairs: Codebook, listed: np.ndarray | None = None) -> np.ndarray:
    """Return for each (node, layout) pair the share (pairs,) of configurations that use it.
    Identical configurations are counted separately. `listed` (configs,) bool: True for the
    configurations to count, which are the reference batch; None: count all."""
    # weights[r]: how many of the counted configurations have row r of the codes
    weights = np.bincount(pairs.rows, listed, len(pairs.codes)).astype(np.float64)
    uses = np.zeros(len(pairs.layouts))
    step = max(1, COUNTED_ENTRIES // max(1, pairs.codes.shape[1]))
    for first in range(0, len(pairs.codes), step):
        block = slice(first, first + step)
        index = pairs.pairs(block)
        each = np.broadcast_to(weights[block, None], index.shape)
        uses += np.bincount(index.ravel(), each.ravel(), minlength=len(uses))
    return uses / weights.sum()


def check_codebook(book: Codebook, *, with_codes: bool = True) -> None:
    """Raise ValueError if the arrays of a codebook that was read from a file have wrong shapes, or
    indices or layouts out of range. `with_codes`: also check every code, which reads all of a
    memory-mapped file."""
    dimensions = {name: array.ndim for name, array in book.arrays().items()}
    if dimensions != {"layouts": 2, "starts": 1, "codes": 2, "rows": 1}:
        raise ValueError(f"the arrays have {dimensions} dimensions")
    if book.layouts.shape[1] != vocabulary.NUM_LAYOUT_FEATURES:
        raise ValueError(f"layouts has shape {book.layouts.shape}")
    counts = np.diff(book.starts)
    ends = book.starts[[0, -1]].tolist() if len(book.starts) == 1 + book.codes.shape[1] else []
    if ends != [0, len(book.layouts)] or (counts < 0).any():
        raise ValueError(f"starts does not divide the {len(book.layouts)} layouts among the nodes")
    if ((book.layouts < LOWEST) | (book.layouts > HIGHEST)).any():
        raise ValueError(f"layouts holds other numbers than {LOWEST} to {HIGHEST}")
    if ((book.rows < 0) | (book.rows >= len(book.codes))).any():
        raise ValueError(f"rows names other rows than the {len(book.codes)} of codes")
    if with_codes and (book.codes >= counts).any():
        raise ValueError("codes names a layout that its node does not have")


class KeyTable:
    """A hash table that numbers distinct integers from 0 in order of insertion. It uses open
    addressing with linear probing (Knuth, "The Art of Computer Programming", volume 3, 6.4), on a
    whole array at a time: four times as fast as sorting."""

    EMPTY = -1

    def __init__(self) -> None:
        self.keys = np.empty(0, np.int64)
        self._rebuild()

    def number(self, keys: np.ndarray) -> np.ndarray:
        """Return the numbers (n,) int32 of `keys` (n,) int64; add new keys."""
        numbers = self._find(keys)
        unknown = np.flatnonzero(numbers == self.EMPTY)
        if len(unknown):
            self.keys = np.concatenate([self.keys, np.unique(keys[unknown])])
            self._rebuild()
            numbers[unknown] = self._find(keys[unknown])
        return numbers

    def _find(self, keys: np.ndarray) -> np.ndarray:
        """Return the numbers (n,) int32 of `keys` (n,); EMPTY for unknown keys."""
        slots = self._slots(keys)
        numbers = self._numbers[slots]
        # While a slot holds another key, try the next slot; stop at the key or at an empty slot.
        other = np.flatnonzero((self._keys[slots] != keys) & (numbers != self.EMPTY))
        while len(other):
            slots[other] = (slots[other] + 1) & self._mask
            numbers[other] = self._numbers[slots[other]]
            wrong = self._keys[slots[other]] != keys[other]
            other = other[wrong & (numbers[other] != self.EMPTY)]
        return numbers

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        """Return the slot (n,) where the search for each key begins: the uppermost bits of
        key * GOLDEN (multiplicative hashing)."""
        return ((keys.view(np.uint64) * GOLDEN) >> self._shift).view(np.int64)

    def _rebuild(self) -> None:
        """Build the hash table anew for all of `self.keys`, with enough slots for them."""
        bits = max(10, int(4 * len(self.keys)).bit_length())  # load factor of at most a quarter
        self._shift, self._mask = np.uint64(64 - bits), (1 << bits) - 1
        self._numbers = np.full(1 << bits, self.EMPTY, np.int32)
        self._keys = np.zeros(1 << bits, np.int64)
        # Insert all keys at once: of several keys for a slot the last one gets it, others move on.
        waiting, slots = np.arange(len(self.keys)), self._slots(self.keys)
        while len(waiting):
            free = waiting[self._numbers[slots[waiting]] == self.EMPTY]
            self._numbers[slots[free]] = free
            waiting = waiting[self._numbers[slots[waiting]] != waiting]
            slots[waiting] = (slots[waiting] + 1) & self._mask
        taken = self._numbers != self.EMPTY
        self._keys[taken] = self.keys[self._numbers[taken]]


TABLE_ENTRIES = 1 << 23  # maximum number of (node, layout) entries of a table in memory
BLOCK_ENTRIES = 1 << 18  # maximum number of (configuration, node) entries in memory at once
SLOTS, NUM_TENSORS = vocabulary.MAX_RANK, len(vocabulary.LAYOUT_TENSORS)
TOKENS = vocabulary.NUM_LAYOUT_TOKENS


class LayoutValueError(ValueError):
    """Raised for a value that is no whole number from -1 to 5, at `index` (config, node, slot)."""

    def __init__(self, index: tuple[int, ...], value: float) -> None:
        super().__init__(f"layout slot {index} is {value}")
        self.index = index
        self.value = value


def encode(configs: np.ndarray) -> Codebook:
    """Return the codebook of a config tensor (configs, configurable, 18) of numbers -1 to 5."""
    encoder = LayoutEncoder(*configs.shape[:2])
    step = max(1, BLOCK_ENTRIES // max(1, configs.shape[1]))
    for first in range(0, len(configs), step):
        encoder.add(configs[first : first + step])
    return encoder.finish()


class LayoutEncoder:
    """An encoder of a config tensor that arrives in blocks, so it is never whole in memory."""

    def __init__(self, num_configs: int, num_nodes: int) -> None:
        self._table = KeyTable()
        # (configs, nodes): number in `_table` of each node's layout; uint32 from 65,536 layouts on
        self._ids = np.empty((num_configs, num_nodes), np.uint16)
        self._filled = 0

    def add(self, block: np.ndarray) -> None:
        """Add the next configurations (k, configurable, 18). Raises LayoutValueError if a value is
        not a whole number from -1 to 5."""
        _check_values(block, self._filled)
        ids = self._table.number(_pack(block))
        if len(self._table.keys) > np.iinfo(self._ids.dtype).max:
            self._ids = self._ids.astype(np.uint32)
        last = self._filled + len(block)
        self._ids[self._filled : last] = ids.reshape(block.shape[:2])
        self._filled = last

    def finish(self) -> Codebook:
        """Return the codebook of all configurations added; the sizes of the blocks do not
        change it."""
        distinct = deduplicate(self._ids)
        ids = self._ids if len(distinct.first) == len(self._ids) else self._ids[distinct.first]
        del self._ids
        order = np.argsort(self._table.keys)  # sort layouts by content, not by first appearance
        # Process a few nodes at a time: a table (all nodes, all layouts) may be too large.
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
    """Number the layouts of each node (a column of `ids`) from 0, in the order that `order` gives
    for all layouts. Returns the numbers (configs, nodes) in the narrowest dtype; the index (pairs,)
    of each node's layouts in the table of all layouts, node after node; and the number of layouts
    of each node (nodes,)."""
    # (nodes, all layouts): True if the node has the layout in at least one configuration
    used = np.zeros((ids.shape[1], len(order)), bool)
    rows = np.arange(ids.shape[1]) * len(order)  # start of each node's row in the flat table
    for block in _blocks(ids):
        used.ravel()[block + rows] = True
    ordered = used[:, order]
    # A layout's number within its node is the count of the node's layouts before it.
    number = np.empty(used.shape, np.int32)
    number[:, order] = ordered.cumsum(axis=1, dtype=np.int32) - 1
    counts = ordered.sum(axis=1)
    numbers = np.empty(ids.shape, np.min_scalar_type(max(0, counts.max(initial=0) - 1)))
    for block, target in zip(_blocks(ids), _blocks(numbers), strict=True):
        target[...] = number.ravel()[block + rows]
    return numbers, order[np.nonzero(ordered)[1]], counts


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, BLOCK_ENTRIES // max(1, rows.shape[1]))
    return (rows[first : first + step] for first in range(0, len(rows), step))


def _check_values(block: np.ndarray, first: int) -> None:
    """Raise LayoutValueError for the first wrong value; the block begins at row `first`."""
    if block.size == 0:
        return
    inside = block.min() >= LOWEST and block.max() <= HIGHEST  # False for NaN
    if inside and (block.dtype.kind in "iu" or not (np.rint(block) != block).any()):
        return
    wrong = ~((block >= LOWEST) & (block <= HIGHEST) & (np.rint(block) == block))
    config, *rest = (int(position) for position in np.argwhere(wrong)[0])
    raise LayoutValueError((first + config, *rest), float(block[(config, *rest)]))


# Weights of the digits of a layout's key in base 7: _POWERS for the 6 slots of a tensor (exact in
# float32), _TENSORS for the 3 tensors (18 digits, exact in float64).
_POWERS = (float(TOKENS) ** np.arange(SLOTS)[::-1]).astype(np.float32)
_TENSORS = float(TOKENS) ** (SLOTS * np.arange(NUM_TENSORS)[::-1])
# the number whose 18 digits in base 7 are 1: added to a key, it shifts every slot by 1
_SHIFT = (TOKENS**vocabulary.NUM_LAYOUT_FEATURES - 1) // (TOKENS - 1)


def _pack(block: np.ndarray) -> np.ndarray:
    """Return a key (k x configurable,) int64 for each layout of a block (k, configurable, 18): the
    18 slots, shifted from -1 ... 5 to 0 ... 6, are the digits of the key in base 7."""
    tensors = block.reshape(-1, SLOTS).astype(np.float32, copy=False) @ _POWERS
    keys = tensors.reshape(-1, NUM_TENSORS).astype(np.float64) @ _TENSORS
    return keys.astype(np.int64) + _SHIFT


def _unpack(keys: np.ndarray) -> np.ndarray:
    """Return the layouts (k, 18) int8 of packed `keys` (k,): their digits in base 7, minus 1."""
    slots = np.empty((len(keys), vocabulary.NUM_LAYOUT_FEATURES), np.int8)
    for slot in reversed(range(vocabulary.NUM_LAYOUT_FEATURES)):
        keys, slots[:, slot] = np.divmod(keys, TOKENS)
    return slots - np.int8(1)


def mix(values: np.ndarray, number: int = 1) -> np.ndarray:
    """Return a 64-bit hash of each of `values` uint64; every `number` gives another hash function.
    Source: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators")."""
    mixed = values + np.uint64(number * int(GOLDEN) % (1 << 64))
    mixed ^= mixed >> np.uint64(30)
    mixed *= FACTORS[0]
    mixed ^= mixed >> np.uint64(27)
    mixed *= FACTORS[1]
    mixed ^= mixed >> np.uint64(31)
    return mixed
