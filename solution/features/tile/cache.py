"""Cache misses of a tiled loop nest, by counting which loops' data stay in the cache.

The loops of a kernel nest: inside a tile its own loops, around them the loops over tiles. Going
from the innermost loop outwards, data is reused as long as all that the loops so far touch fits;
the first loop with which it does not fit brings each of its lines anew at every execution. Caches
do not always throw out what was used longest ago, so the same is counted once more with a part of
what does not fit that stays.

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
from solution.features.tile.tiling import NUM_LOOPS, REDUCTION, WINDOW, Tiling
from solution.features.tile.walk import Walk

FIRST_LEVEL, SECOND_LEVEL = 48 << 10, 1 << 20  # bytes of a processor's data caches


@dataclass(frozen=True)
class Cache:
    """A cache or a table of pages with `sets` sets of `ways` blocks."""

    block: int  # bytes
    ways: int
    sets: int

    @property
    def blocks(self) -> int:
        return self.ways * self.sets


@dataclass(frozen=True)
class Nest:
    """The loops of a kernel that go round, from the innermost outwards."""

    configs: int
    levels: np.ndarray  # (levels, configs, NUM_LOOPS): iterations inside each level
    mean_levels: np.ndarray  # the same, the tiles on the borders with what is left for them
    executions: np.ndarray  # (levels, configs): how often each level is run


class Reached(NamedTuple):
    """What each level of a nest touches of one tensor: boxes (levels x configs, rank)."""

    walk: Walk
    box: np.ndarray  # by a whole tile
    mean_box: np.ndarray  # by all tiles, on average


class Blocks(NamedTuple):
    """How many blocks the boxes of one tensor touch: (levels x configs,)."""

    whole: np.ndarray
    mean: np.ndarray


class Misses(NamedTuple):
    """Blocks (configs,) that are brought in by all tensors together."""

    least_recent: np.ndarray  # what was used longest ago is thrown out: all stays, or nothing
    gradual: np.ndarray  # as much stays as there is room for


def make_nest(tiling: Tiling, inner: int) -> Nest:
    """Inside a tile: outer dimensions, then sums, then the loop `inner`; tiles around them."""
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
    """Loops from the innermost outwards."""
    sums = [REDUCTION, *range(NUM_LOOPS - 1, WINDOW - 1, -1)]
    output = list(range(MAX_RANK - 1, -1, -1))
    rest = [tiling.rank - 1, *sums, *(loop for loop in output if loop != tiling.rank - 1)]
    return [inner, *(loop for loop in rest if loop != inner)]


def reach(walks: Sequence[Walk], nest: Nest) -> list[Reached]:
    """What each level of the nest touches of each tensor."""
    # All levels at once: the arrays are small.
    whole, mean = (part.reshape(-1, NUM_LOOPS) for part in (nest.levels, nest.mean_levels))
    return [Reached(walk, walk.box(whole), walk.box(mean)) for walk in walks]


def count_blocks_of(reached: Reached, block: int) -> Blocks:
    """Blocks of that many bytes that are touched at each level."""
    walk, box, mean_box = reached
    aligned = _align(walk, box, block)
    return Blocks(*(_count_aligned(walk, part, aligned, block) for part in (box, mean_box)))


def count_blocks(walk: Walk, box: np.ndarray, block: int) -> np.ndarray:
    """Blocks (configs,) that boxes (configs, rank) touch; long strides take one for each step.

    On average over all places of such a box in the tensor, if it is cut into such boxes.
    """
    return _count_aligned(walk, box, _align(walk, box, block), block)


def _align(walk: Walk, box: np.ndarray, block: int) -> np.ndarray:
    """Bytes (configs, rank) of which all places where such boxes begin are multiples.

    Of blocks, if they are shorter; of dimensions with steps as long as a block nobody asks. What a
    tile of 16 numbers begins with is where a line does.
    """
    aligned, outer = np.full(box.shape, block, np.float64), block
    for dimension, stride in enumerate(walk.strides.tolist()):
        if stride < block:
            steps = np.where(box[:, dimension] < walk.sizes[dimension], box[:, dimension], 0)
            aligned[:, dimension] = np.gcd(np.rint(steps * stride).astype(np.int64), outer)
        outer = math.gcd(outer, max(1, round(stride)))
    return aligned


def _count_aligned(walk: Walk, box: np.ndarray, aligned: np.ndarray, block: int) -> np.ndarray:
    """Blocks (configs,) of boxes (configs, rank) that begin at multiples of `aligned` bytes."""
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
    """What all levels of the nest bring into the cache; 1 where there is none.

    Args:
        blocks: of the cache, that each of `reached` touches.
    """
    configs = nest.configs
    if not len(nest.levels) or not reached:
        return Misses(np.ones(configs), np.ones(configs))
    occupied = sum(
        _occupy(r.walk, r.box, own.whole, cache) for r, own in zip(reached, blocks, strict=True)
    )
    shape = nest.executions.shape
    brought = np.reshape(sum(own.mean for own in blocks), shape) * nest.executions
    room = np.reshape(cache.blocks / np.maximum(occupied, 1), shape)
    # As long as all inner levels fit, a level brings each of its blocks once: the last such counts.
    fit = np.logical_and.accumulate(room >= 1, axis=0)
    level = np.minimum(fit.sum(axis=0), shape[0] - 1)
    # What a level keeps of all that it touches, the loop around it need not bring anew.
    kept = np.minimum.accumulate(np.minimum(room, 1), axis=0)[:-1]
    least = np.minimum.accumulate(brought, axis=0)
    gradual = least[0] - (kept * (least[:-1] - least[1:])).sum(axis=0)
    return Misses(brought[level, np.arange(configs)], gradual)


def _occupy(walk: Walk, box: np.ndarray, blocks: np.ndarray, cache: Cache) -> np.ndarray:
    """Blocks (configs,) of the cache that the boxes keep busy, those of unused sets with them.

    Args:
        blocks: (configs,) that the boxes touch.
    """
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
    """Sets that a walk with this stride (bytes) reaches: few where it is a power of two."""
    if stride < cache.block or stride % cache.block:
        return cache.sets
    return cache.sets / math.gcd(cache.sets, int(stride // cache.block))
