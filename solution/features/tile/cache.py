"""Count the cache misses of a tiled loop nest.

The kernel's loops run inside a tile, and the loops over tiles run around them. Going outwards from
the innermost loop, data is reused as long as all data that the loops so far touch fits into the
cache. The first loop whose data no longer fits loads each of its lines again in every execution.
Caches do not always evict the least recently used line, so a second count keeps a part of the data
that does not fit. A box is the part of a tensor that some iterations touch; a block is a cache line
or a page.

Source: the reuse analysis of Wolf and Lam, "A data locality optimizing algorithm", PLDI 1991; cache
sets that a power-of-two stride leaves unused as in Lam, Rothberg and Wolf, "The cache performance
and optimizations of blocked algorithms", ASPLOS 1991.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solution.domain.vocabulary import MAX_RANK
from solution.features.tile.access import Walk
from solution.features.tile.tiling import NUM_LOOPS, REDUCTION, WINDOW, Tiling

FIRST_LEVEL, SECOND_LEVEL = 48 << 10, 1 << 20  # bytes of a processor's data caches


@dataclass(frozen=True)
class Cache:
    """A cache or a TLB with `sets` sets of `ways` blocks each."""

    block: int  # size of a block in bytes
    ways: int
    sets: int

    @property
    def blocks(self) -> int:
        return self.ways * self.sets


@dataclass(frozen=True)
class Nest:
    """A kernel's loop nest, without loops along a size of 1. A level is a loop and all loops in
    it. Levels go from the innermost outwards: first loops inside a tile, then loops over tiles."""

    configs: int
    # (levels, configs, NUM_LOOPS): number of iterations of each loop in one run of the level, in a
    # tile of full size
    levels: np.ndarray
    # as `levels`, but averaged over all tiles, because tiles at the border are smaller
    mean_levels: np.ndarray
    executions: np.ndarray  # (levels, configs): how often the loop of each level is started


class Reached(NamedTuple):
    """The part of a tensor (box) that one run of each level's loop touches; the boxes are (levels x
    configs, rank)."""

    walk: Walk
    box: np.ndarray  # elements along each dimension, for a whole tile
    mean_box: np.ndarray  # elements along each dimension, averaged over all tiles


class Blocks(NamedTuple):
    """Number of cache blocks (levels x configs,) in each box of a tensor: of a `whole` tile, and
    the `mean` over all tiles."""

    whole: np.ndarray
    mean: np.ndarray


class Misses(NamedTuple):
    """The number of blocks (configs,) of all tensors that a kernel loads into a cache."""

    # for a cache that evicts the least recently used block: either all data of a level stays in it,
    # or none
    least_recent: np.ndarray
    # for a cache that may evict other blocks: as much of a level's data stays as fits into it
    gradual: np.ndarray


def make_nest(tiling: Tiling, inner: int) -> Nest:
    """Return a kernel's loop nest with the innermost loop `inner`; loops over tiles are outside."""
    active = [loop for loop in _order(tiling, inner) if tiling.extents[loop] > 1]
    around = [loop for loop in _order(tiling, tiling.rank - 1) if loop in active]
    configs, counts = len(tiling.tiles), tiling.counts
    levels = np.ones((2 * len(active), configs, NUM_LOOPS))
    mean_levels = levels.copy()
    executions = np.empty((2 * len(active), configs))
    left = np.full(configs, tiling.extents.prod())
    for level, loop in enumerate(active):
        levels[level:, :, loop] = tiling.tiles[:, loop]
        mean_levels[level:, :, loop] = mean = tiling.extents[loop] / counts[:, loop]
        executions[level] = left = left / mean
    for level, loop in enumerate(around, start=len(active)):
        levels[level:, :, loop] = mean_levels[level:, :, loop] = tiling.extents[loop]
        executions[level] = left = left / counts[:, loop]
    return Nest(configs, levels, mean_levels, executions)


def _order(tiling: Tiling, inner: int) -> list[int]:
    """Return the numbers of all loops, from the innermost outwards: `inner`, the loop along the
    minor dimension, the loops of sums, the loops along other dimensions."""
    sums = [REDUCTION, *range(NUM_LOOPS - 1, WINDOW - 1, -1)]
    output = list(range(MAX_RANK - 1, -1, -1))
    rest = [tiling.rank - 1, *sums, *(loop for loop in output if loop != tiling.rank - 1)]
    return [inner, *(loop for loop in rest if loop != inner)]


def reach(walks: Sequence[Walk], nest: Nest) -> list[Reached]:
    """Return the boxes of each tensor of `walks` that the levels of a nest touch. A level is a loop
    and all loops inside it."""
    # All levels in one array operation, because the arrays are small.
    whole, mean = (part.reshape(-1, NUM_LOOPS) for part in (nest.levels, nest.mean_levels))
    return [Reached(walk, walk.box(whole), walk.box(mean)) for walk in walks]


def count_blocks_of(reached: Reached, block: int) -> Blocks:
    """Count blocks of `block` bytes in each level's box of a tensor."""
    walk, box, mean_box = reached
    aligned = _align(walk, box, block)
    return Blocks(*(_count_aligned(walk, part, aligned, block) for part in (box, mean_box)))


def count_blocks(walk: Walk, box: np.ndarray, block: int) -> np.ndarray:
    """Return the number of blocks (configs,) of `block` bytes that a `box` (configs, rank) of a
    tensor touches: the mean over all boxes of this size."""
    return _count_aligned(walk, box, _align(walk, box, block), block)


def _align(walk: Walk, box: np.ndarray, block: int) -> np.ndarray:
    """Return the alignment in bytes (configs, rank), at most a block, of the starts of boxes along
    each dimension. For instance, boxes of 16 float32 start where a cache line of 64 bytes does. A
    dimension with a stride of a block or more needs no alignment and gets `block`."""
    aligned, outer = np.full(box.shape, block, np.float64), block
    for dimension, stride in enumerate(walk.strides.tolist()):
        if stride < block:
            steps = np.where(box[:, dimension] < walk.sizes[dimension], box[:, dimension], 0)
            aligned[:, dimension] = np.gcd(np.rint(steps * stride).astype(np.int64), outer)
        outer = math.gcd(outer, max(1, round(stride)))
    return aligned


def _count_aligned(walk: Walk, box: np.ndarray, aligned: np.ndarray, block: int) -> np.ndarray:
    """Return the number of blocks (configs,) that boxes (configs, rank) touch if they start at
    multiples of `aligned` bytes (configs, rank): the product over dimensions of the size or, if the
    stride is below a block, max(1, 1 + (size * stride - max(aligned, stride)) / block)."""
    count = np.ones(len(box))
    for dimension, stride in enumerate(walk.strides):
        steps = box[:, dimension]
        if stride < block:
            begin = np.maximum(aligned[:, dimension], stride)
            steps = np.maximum(1, 1 + (steps * stride - begin) / block)
        count *= steps
    return count


def count_misses(
    reached: Sequence[Reached], blocks: Sequence[Blocks], nest: Nest, cache: Cache
) -> Misses:
    """Return the number of blocks (configs,), at least 1, that the loop nest loads into the cache.
    `reached`: for each tensor, the box that a run of each level touches. `blocks`: for each tensor,
    the number of blocks in each of these boxes."""
    configs = nest.configs
    if not len(nest.levels) or not reached:
        return Misses(np.ones(configs), np.ones(configs))
    occupied = sum(
        _occupy(r.walk, r.box, b.whole, cache) for r, b in zip(reached, blocks, strict=True)
    )
    shape = nest.executions.shape
    brought = np.reshape(sum(each.mean for each in blocks), shape) * nest.executions
    room = np.reshape(cache.blocks / np.maximum(occupied, 1), shape)
    # A level reuses its data if the cache holds all of it. `level`: the first level whose data does
    # not fit (the last level if all fit); each of its runs loads its data again.
    fit = np.logical_and.accumulate(room >= 1, axis=0)
    level = np.minimum(fit.sum(axis=0), shape[0] - 1)
    # a level that keeps the share `kept` of its data loads only the rest again at each run
    kept = np.minimum.accumulate(np.minimum(room, 1), axis=0)[:-1]
    least = np.minimum.accumulate(brought, axis=0)
    gradual = least[0] - (kept * (least[:-1] - least[1:])).sum(axis=0)
    # a difference of sizes near 2^63 may be rounded to 0: then take the smallest count instead
    gradual = np.where(gradual > 0, gradual, least[-1])
    return Misses(brought[level, np.arange(configs)], gradual)


def _occupy(walk: Walk, box: np.ndarray, blocks: np.ndarray, cache: Cache) -> np.ndarray:
    """Return the number of blocks (configs,) of the cache that a box occupies: the number `blocks`
    in the box, or more if the strides leave some of the cache's sets unused."""
    reached = np.ones(len(box))
    for dimension, stride in enumerate(walk.strides):
        steps = box[:, dimension]
        if stride < cache.block:
            reached *= 1 + (steps - 1) * stride / cache.block
        else:
            reached *= np.minimum(steps, distinct_sets(stride, cache))
    used = np.minimum(np.maximum(reached, 1), cache.sets)
    return np.maximum(blocks, blocks / used * cache.sets * (blocks > used))


def distinct_sets(stride: float, cache: Cache) -> float:
    """Return the number of the cache's sets that steps of a stride (bytes) reach: few if the stride
    is a large power of two."""
    if stride < cache.block or stride % cache.block:
        return cache.sets
    return cache.sets / math.gcd(cache.sets, int(stride // cache.block))
