"""Misses of all levels of a loop nest at once, against one level after the other."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.vocabulary import MAX_RANK, NUM_TILE_FEATURES
from solution.features.tile.access import find_walks
from solution.features.tile.cache import Cache, count_blocks, count_misses, make_nest, reach
from solution.features.tile.loops import innermost_loop
from solution.features.tile.tiling import REDUCTION, WINDOW, Tiling, find_tiling
from solution.features.tile.traffic import CACHES
from solution.features.tile.walk import Walk
from tests.features.tile.test_tile_table import make_kernel

SIZES = st.integers(1, 300)


def slow_levels(tiling: Tiling, config: int, inner: int) -> list[tuple[np.ndarray, float]]:
    """From the innermost loop outwards: what it goes through (loops,), and how often it is run."""
    minor = tiling.rank - 1
    loops = [minor, REDUCTION, *reversed(range(WINDOW, len(tiling.extents)))]
    loops += [loop for loop in reversed(range(MAX_RANK)) if loop != minor]
    inside = [inner, *(loop for loop in loops if loop != inner)]
    reached = np.ones(len(tiling.extents))
    tile, count = tiling.tiles[config], tiling.counts[config]
    left, levels = tile.prod() * count.prod(), []
    for order, size, steps in ((inside, tile, tile), (loops, tiling.extents, count)):
        for loop in order:
            if tiling.extents[loop] > 1:
                reached[loop] = size[loop]
                left /= steps[loop]
                levels.append((reached.copy(), left))
    return levels


def slow_occupied(walk: Walk, box: np.ndarray, blocks: float, cache: Cache) -> float:
    """Blocks that a box keeps busy where its strides leave sets of the cache unused."""
    reached = 1.0
    for steps, stride in zip(box, walk.strides, strict=True):
        if stride < cache.block:
            reached *= 1 + (steps - 1) * stride / cache.block
        elif stride % cache.block:
            reached *= min(steps, cache.sets)
        else:
            reached *= min(steps, cache.sets / np.gcd(cache.sets, int(stride // cache.block)))
    used = min(max(reached, 1), cache.sets)
    return max(blocks, blocks / used * cache.sets) if blocks > used else blocks


def slow_misses(walks: list[Walk], levels: list[tuple[np.ndarray, float]], cache: Cache) -> float:
    """The first level whose data do not fit brings its blocks anew each time that it is run."""
    misses = 1.0
    for reached, executions in levels:
        boxes = [walk.box(reached[None]) for walk in walks]
        blocks = [
            float(count_blocks(walk, box, cache.block)[0])
            for walk, box in zip(walks, boxes, strict=True)
        ]
        misses = sum(blocks) * executions
        busy = zip(walks, boxes, blocks, strict=True)
        if sum(slow_occupied(walk, box[0], own, cache) for walk, box, own in busy) > cache.blocks:
            break
    return misses


@given(SIZES, SIZES, SIZES, st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_misses_are_those_of_a_walk_through_the_levels(
    rows: int, inner: int, columns: int, tiles: list[tuple[int, int, int]]
) -> None:
    nodes = [
        ("parameter", (rows, inner)),
        ("parameter", (inner, columns)),
        ("dot", (rows, columns)),
    ]
    given_tiles = np.zeros((len(tiles), NUM_TILE_FEATURES), np.float32)
    for row, (high, wide, step) in zip(given_tiles, tiles, strict=True):
        row[8:10] = min(high, rows), min(wide, columns)
        row[16] = min(step, inner)
    graph = make_kernel(nodes, [(2, 0), (2, 1)], given_tiles)
    tiling, walks = find_tiling(graph), find_walks(graph)
    loop = innermost_loop(graph)
    nest = make_nest(tiling, loop)
    for cache in CACHES.values():
        boxes = reach(walks, nest)
        blocks = [count_blocks(w, box, cache.block) for w, box in zip(walks, boxes, strict=True)]
        found = count_misses(walks, boxes, blocks, nest, cache)
        for config, misses in enumerate(found):
            levels = slow_levels(tiling, config, loop)
            assert len(levels) == len(nest.levels)
            expected = slow_misses(walks, levels, cache)
            np.testing.assert_allclose(misses, expected, rtol=1e-12)
