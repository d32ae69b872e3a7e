"""Cache misses of a tiled loop nest, by counting which loops' data stay in the cache.

The loops of a kernel nest: inside a tile its own loops, around them the loops over tiles. Going
from the innermost loop outwards, data is reused as long as all that the loops so far touch fits;
the first loop with which it does not fit brings each of its lines anew at every execution.

Source: the reuse analysis of Wolf and Lam, "A data locality optimizing algorithm", PLDI 1991; cache
sets that a power-of-two stride leaves unused as in Lam, Rothberg and Wolf, "The cache performance
and optimizations of blocked algorithms", ASPLOS 1991.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    executions: np.ndarray  # (levels, configs): how often each level is run


def make_nest(tiling: Tiling, inner: int) -> Nest:
    """Inside a tile: outer dimensions, then sums, then the loop `inner`; tiles around them."""
    active = [loop for loop in _order(tiling, inner) if tiling.extents[loop] > 1]
    around = [loop for loop in _order(tiling, tiling.rank - 1) if loop in active]
    configs, counts = len(tiling.tiles), tiling.counts
    levels = np.ones((2 * len(active), configs, NUM_LOOPS))
    executions = np.empty((2 * len(active), configs))
    left = tiling.tiles.prod(axis=1) * counts.prod(axis=1)
    for level, loop in enumerate(active):
        levels[level:, :, loop] = tiling.tiles[:, loop]
        executions[level] = left = left / tiling.tiles[:, loop]
    for level, loop in enumerate(around, start=len(active)):
        levels[level:, :, loop] = tiling.extents[loop]
        executions[level] = left = left / counts[:, loop]
    return Nest(configs, levels, executions)


def _order(tiling: Tiling, inner: int) -> list[int]:
    """Loops from the innermost outwards."""
    sums = [REDUCTION, *range(NUM_LOOPS - 1, WINDOW - 1, -1)]
    output = list(range(MAX_RANK - 1, -1, -1))
    rest = [tiling.rank - 1, *sums, *(loop for loop in output if loop != tiling.rank - 1)]
    return [inner, *(loop for loop in rest if loop != inner)]


def reach(walks: Sequence[Walk], nest: Nest) -> list[np.ndarray]:
    """What each level of the nest touches of each tensor: boxes (levels x configs, rank)."""
    iterations = nest.levels.reshape(-1, NUM_LOOPS)  # all levels at once: the arrays are small
    return [walk.box(iterations) for walk in walks]


def count_misses(
    walks: Sequence[Walk],
    boxes: Sequence[np.ndarray],
    blocks: Sequence[np.ndarray],
    nest: Nest,
    cache: Cache,
) -> np.ndarray:
    """Blocks (configs,) that are brought in by all tensors together; 1 where there is none.

    Args:
        boxes: what `reach` says of the walks.
        blocks: of the cache, which the boxes of each walk touch, as `count_blocks` says.
    """
    configs = nest.configs
    if not len(nest.levels) or not walks:
        return np.ones(configs)
    occupied = sum(
        _occupy(w, box, own, cache) for w, box, own in zip(walks, boxes, blocks, strict=True)
    )
    shape = nest.executions.shape
    brought = np.reshape(sum(blocks), shape) * nest.executions
    fit = np.logical_and.accumulate(np.reshape(occupied <= cache.blocks, shape), axis=0)
    # As long as all inner levels fit, a level brings each of its blocks once: the last such counts.
    level = np.minimum(fit.sum(axis=0), shape[0] - 1)
    return brought[level, np.arange(configs)]


def count_blocks(walk: Walk, box: np.ndarray, block: int) -> np.ndarray:
    """Blocks (configs,) that boxes (configs, rank) touch; long strides take one for each step."""
    count = np.ones(len(box))
    for dimension, stride in enumerate(walk.strides):
        count *= 1 + (box[:, dimension] - 1) * min(1.0, stride / block)
    return count


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
