"""Misses of all levels of a loop nest at once, against one level after the other."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.vocabulary import MAX_RANK, NUM_TILE_FEATURES
from solution.features.tile.access import find_walks
from solution.features.tile.cache import (
    Cache,
    count_blocks,
    count_blocks_of,
    count_misses,
    make_nest,
    reach,
)
from solution.features.tile.loops import innermost_loop
from solution.features.tile.tiling import REDUCTION, WINDOW, Tiling, find_tiling
from solution.features.tile.traffic import CACHES
from solution.features.tile.walk import Walk
from tests.features.tile.test_access import with_dimensions
from tests.features.tile.test_tile_table import make_kernel, make_tile

SIZES = st.integers(1, 300)


class Level(NamedTuple):
    """The loops so far, from the innermost outwards."""

    reached: np.ndarray  # (loops,) what a whole tile goes through
    mean: np.ndarray  # (loops,) the same, on average over all tiles
    executions: float


def slow_levels(tiling: Tiling, config: int, inner: int) -> list[Level]:
    minor = tiling.rank - 1
    loops = [minor, REDUCTION, *reversed(range(WINDOW, len(tiling.extents)))]
    loops += [loop for loop in reversed(range(MAX_RANK)) if loop != minor]
    inside = [inner, *(loop for loop in loops if loop != inner)]
    reached, mean = np.ones(len(tiling.extents)), np.ones(len(tiling.extents))
    tile, levels = tiling.tiles[config], []
    for order, size, average in (
        (inside, tile, tiling.extents / tiling.counts[config]),
        (loops, tiling.extents, tiling.extents),
    ):
        for loop in order:
            if tiling.extents[loop] > 1:
                reached[loop], mean[loop] = size[loop], average[loop]
                executions = tiling.extents.prod() / mean.prod()
                levels.append(Level(reached.copy(), mean.copy(), executions))
    return levels


def slow_blocks(walk: Walk, box: np.ndarray, mean: np.ndarray, block: int) -> float:
    """Blocks of an average box, whose places begin at multiples of what whole ones take."""
    count = 1.0
    for dimension, stride in enumerate(walk.strides):
        if stride >= block:
            count *= mean[dimension]
            continue
        steps = [block, *walk.strides[:dimension]]  # where rows, planes, ... begin
        if box[dimension] < walk.sizes[dimension]:
            steps.append(box[dimension] * stride)
        begin = max(stride, math.gcd(*(round(step) for step in steps)))
        count *= max(1.0, 1 + (mean[dimension] * stride - begin) / block)
    return count


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


def slow_misses(walks: list[Walk], levels: list[Level], cache: Cache) -> tuple[float, float]:
    """The first level whose data do not fit brings its blocks anew each time that it is run.

    And the same, where each level keeps as much of what it touches as there is room for.
    """
    brought, room = [], []
    for level in levels:
        boxes = [walk.box(level.reached[None])[0] for walk in walks]
        means = [walk.box(level.mean[None])[0] for walk in walks]
        whole = [slow_blocks(w, box, box, cache.block) for w, box in zip(walks, boxes, strict=True)]
        average = [
            slow_blocks(w, *both, cache.block) for w, *both in zip(walks, boxes, means, strict=True)
        ]
        busy = zip(walks, boxes, whole, strict=True)
        occupied = sum(slow_occupied(walk, box, own, cache) for walk, box, own in busy)
        brought.append(sum(average) * level.executions)
        room.append(min(1.0, cache.blocks / occupied))
    if not levels:
        return 1.0, 1.0
    fit = [place for place, free in enumerate(room) if free < 1]
    gradual, kept, least = brought[0], 1.0, brought[0]
    for free, next_brought in zip(room, brought[1:], strict=False):
        kept = min(kept, free)
        gradual -= kept * max(0.0, least - next_brought)
        least = min(least, next_brought)
    return brought[fit[0] if fit else -1], gradual


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
        reached = reach(walks, nest)
        blocks = [count_blocks_of(own, cache.block) for own in reached]
        found = count_misses(reached, blocks, nest, cache)
        for config in range(len(tiles)):
            levels = slow_levels(tiling, config, loop)
            assert len(levels) == len(nest.levels)
            recent, gradual = slow_misses(walks, levels, cache)
            np.testing.assert_allclose(found.least_recent[config], recent, rtol=1e-9)
            np.testing.assert_allclose(found.gradual[config], gradual, rtol=1e-9)
            assert found.gradual[config] > 0


class SlowCache:
    """A cache that throws out what was used longest ago, block by block."""

    def __init__(self, cache: Cache) -> None:
        self.cache, self.misses = cache, 0
        self.sets: list[dict[int, None]] = [{} for _ in range(cache.sets)]

    def touch(self, address: int) -> None:
        block = address // self.cache.block
        kept = self.sets[block % self.cache.sets]
        self.misses += block not in kept
        kept.pop(block, None)
        kept[block] = None  # the last one is the latest
        if len(kept) > self.cache.ways:
            kept.pop(next(iter(kept)))


@pytest.mark.parametrize("tile", [(64, 5), (64, 16), (64, 24), (16, 48), (5, 100), (96, 7)])
@pytest.mark.parametrize("rows", [96, 128, 100])
def test_misses_of_a_transpose_are_those_of_a_cache(tile: tuple[int, int], rows: int) -> None:
    """Whose stride leaves it some sets only; what is written goes through the same cache."""
    columns = 112
    nodes = [("parameter", (columns, rows)), ("transpose", (rows, columns))]
    high, wide = min(tile[0], rows), tile[1]
    graph = with_dimensions(make_kernel(nodes, [(1, 0)], make_tile(high, wide)[None]), 1, (1, 0))
    cache, tiling = Cache(block=64, ways=4, sets=16), find_tiling(graph)
    nest = make_nest(tiling, 1)
    reached = reach(find_walks(graph), nest)
    blocks = [count_blocks_of(own, cache.block) for own in reached]
    slow = SlowCache(cache)
    for top, left in itertools.product(range(0, rows, high), range(0, columns, wide)):
        for row in range(top, min(rows, top + high)):
            for column in range(left, min(columns, left + wide)):
                slow.touch(4 * (column * rows + row))
                slow.touch(4 * (rows * columns + 1024 + row * columns + column))
    found = count_misses(reached, blocks, nest, cache)
    assert found.least_recent[0] == pytest.approx(slow.misses, rel=0.25)
    lines = 2 * rows * columns * 4 / 64  # each has to come once
    assert lines * 0.95 <= found.gradual[0] <= found.least_recent[0]


@pytest.mark.parametrize("tile", [(16, 16), (64, 8), (8, 64), (96, 96)])
def test_misses_of_a_transpose_are_those_of_an_lru_cache(tile: tuple[int, int]) -> None:
    """Reading (96, 100) down its columns, tile by tile, through 32 lines."""
    rows, columns = 96, 100
    nodes = [("parameter", (rows, columns)), ("transpose", (columns, rows))]
    graph = with_dimensions(make_kernel(nodes, [(1, 0)], make_tile(*tile)[None]), 1, (1, 0))
    cache, nest = Cache(block=64, ways=32, sets=1), make_nest(find_tiling(graph), 1)
    reached = reach([find_walks(graph)[1]], nest)
    blocks = [count_blocks_of(own, cache.block) for own in reached]
    (found,) = count_misses(reached, blocks, nest, cache).least_recent
    slow = SlowCache(cache)
    for top, left in itertools.product(range(0, columns, tile[0]), range(0, rows, tile[1])):
        for i in range(top, min(columns, top + tile[0])):
            for j in range(left, min(rows, left + tile[1])):
                slow.touch(4 * (j * columns + i))
    assert slow.misses / 2 <= found <= slow.misses * 2


@pytest.mark.parametrize(("wide", "lines"), [(16, 1), (32, 2), (8, 1), (24, 2), (20, 2), (512, 32)])
def test_lines_of_a_run_are_those_of_its_places_on_average(wide: int, lines: int) -> None:
    """Runs of a row of 512 numbers, wherever a tile of that width begins."""
    nodes = [("parameter", (64, 512)), ("tanh", (64, 512))]
    graph = make_kernel(nodes, [(1, 0)], make_tile(1, wide)[None])
    walk = find_walks(graph)[1]
    begins = range(0, 16 * wide, wide)  # all places in a line that occur
    touched = [(4 * (begin + wide) - 1) // 64 - 4 * begin // 64 + 1 for begin in begins]
    (found,) = count_blocks(walk, np.array([[1.0, wide]]), 64)
    assert found == pytest.approx(np.mean(touched))
    assert math.ceil(found) == lines


def test_as_much_stays_as_there_is_room_for() -> None:
    """64 lines of a column are brought for each of 128 rows, but for what stays of them."""
    nodes = [("parameter", (64, 128)), ("transpose", (128, 64))]
    graph = with_dimensions(make_kernel(nodes, [(1, 0)], make_tile(128, 64)[None]), 1, (1, 0))
    cache, nest = Cache(block=64, ways=16, sets=1), make_nest(find_tiling(graph), 1)
    reached = reach(find_walks(graph)[1:], nest)  # what is read alone
    blocks = [count_blocks_of(own, cache.block) for own in reached]
    found = count_misses(reached, blocks, nest, cache)
    once, always = 64 * 128 / 16, 64 * 128
    assert found.least_recent[0] == always
    assert found.gradual[0] == always - 16 / 64 * (always - once)
