"""Describe the memory traffic of a tile: working set, cache lines, pages, misses.

For every tensor that a kernel reads or writes (solution.features.tile.access), the box that a tile
touches is counted in cache lines and pages. Traffic is that count times the number of tiles,
divided by the count of the whole tensor: 1 is the optimum for any kernel.

The column "cycles" estimates the cycles of a tiled kernel by costs that are the same for all
kernels. It sums the innermost loop's computation, the start of that loop and of the loop around it,
and the misses of the caches and of the page table. The costs are not fitted by a model. They are
six round numbers that were **chosen on the labelled kernels** of all folds, so an out-of-fold score
of a model that reads this column is a little too high: without the column the ensemble's tile score
falls from 0.991 to 0.989. With costs chosen on one half of the families, the estimate alone scores
0.948 to 0.962 on the other half; with costs chosen on all kernels it scores 0.970.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK
from solution.features.column import Columns, Feature
from solution.features.tile.access import Walk, find_walks
from solution.features.tile.cache import (
    FIRST_LEVEL,
    SECOND_LEVEL,
    Cache,
    Misses,
    Nest,
    count_blocks,
    count_blocks_of,
    count_misses,
    distinct_sets,
    reach,
)
from solution.features.tile.loops import count_tails, innermost_loop, is_unit
from solution.features.tile.tiling import NUM_LOOPS, REDUCTION, WINDOW, Tiling, find_tiling

NUMBERS = 16  # float32 numbers in a vector
VECTOR, NUMBER = 4.0, 1.0  # cycles to compute one vector, and one number without vectors
START = 20.0  # cycles to start the innermost loop, or the loop around it
MISS = {"first_level": 4.0, "second_level": 15.0, "page_table": 20.0}  # cycles of one miss
LINE, PAGE = 64, 4096  # bytes of a cache line and of a page
CACHES = {
    "first_level": Cache(LINE, 12, 64),  # 48 KiB
    "second_level": Cache(LINE, 16, 1024),  # 1 MiB
    "third_level": Cache(LINE, 16, 1 << 15),  # 32 MiB
    "page_table": Cache(PAGE, 4, 16),  # 64 pages
}
BLOCKS = sorted({cache.block for cache in CACHES.values()})
SIZES = {  # bytes, compared with the working set; a TPU core fills the scratchpad with tiles
    "first_level": FIRST_LEVEL,
    "second_level": SECOND_LEVEL,
    "scratchpad": 16 << 20,
}
# Number of input tensors that have columns of their own. They are the largest ones; among equally
# large tensors, longer strides come first.
READ = 2

_OF_ALL = (
    Feature("working_set", "log1p bytes", "bytes that a tile touches, which should fit the cache"),
    *(Feature(f"over_{name}", "log ratio", f"the working set over the {name.replace('_', ' ')}")
      for name in SIZES),
    Feature("pages", "log1p pages", "pages that a tile touches, each an address translation"),
    Feature("traffic", "log ratio", "cache lines that all tiles load, over all lines"),
    Feature("traffic_kept", "log ratio", "the same if each tile keeps data of the last one"),
    *(Feature(f"misses_{name}", "log ratio", f"blocks that the {name.replace('_', ' ')} loads, "
              "over all blocks, if data that does not fit is evicted")
      for name in CACHES),
    *(Feature(f"gradual_{name}", "log ratio", f"blocks that the {name.replace('_', ' ')} loads, "
              "over all blocks, if as much of the data stays as fits")
      for name in CACHES),
    Feature("cycles", "log per iteration", "cycles of a processor, estimated without a model"),
)  # fmt: skip
_OF_ONE = (
    ("traffic", "log ratio", "its cache lines that all tiles load, over all its lines"),
    ("kept", "log ratio", "the same if each tile keeps data of the last one"),
    ("lines", "log lines", "its cache lines that a tile touches"),
    ("pages", "log pages", "its pages that a tile touches"),
    ("run", "log elements", "contiguous elements, which a prefetcher loads"),
    ("use", "log share", "bytes used of each line that is loaded"),
    ("stride", "log1p bytes", "between two iterations of the inner loop"),
    ("sweep", "log lines", "lines that one run of the inner loop touches"),
    ("conflicts", "log ratio", "the sweep over the cache lines that its stride can use"),
)
FEATURES = _OF_ALL + tuple(
    Feature(f"{name}_{key}", unit, f"{whose}: {reason}")
    for name, whose in (
        ("written", "the tiled tensor"),
        ("read_0", "the largest tensor read"),
        ("read_1", "the next tensor read"),
    )
    for key, unit, reason in _OF_ONE
)


def estimate_cycles(graph: Graph, nest: Nest, misses: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the estimated cycles (configs,) of one iteration on average: work + (START * starts +
    sum over caches of MISS * misses) / iterations."""
    tiling = find_tiling(graph)
    work = NUMBER * np.ones(len(tiling.tiles))
    if is_unit(graph):
        work = VECTOR / NUMBERS * count_tails(tiling, innermost_loop(graph), NUMBERS)
    starts = nest.executions[:2].sum(axis=0)
    waits = sum(cycles * misses[name] for name, cycles in MISS.items())
    return work + (START * starts + waits) / tiling.extents.prod()


@dataclass(frozen=True)
class Touch:
    """The part of a tensor that each configuration's tile touches; all arrays are (configs,)."""

    walk: Walk
    elements: np.ndarray
    lines: np.ndarray
    pages: np.ndarray
    run: np.ndarray  # number of contiguous elements of the part
    trips: np.ndarray  # number of tiles whose part must be loaded, as the previous tile's differs
    least: float  # number of cache lines of the whole tensor, which is the least possible traffic


def describe_traffic(graph: Graph, nest: Nest) -> Columns:
    """Return the columns FEATURES (configs,) by name, for a graph with the loop nest `nest`."""
    tiling, inner = find_tiling(graph), find_tiling(graph).rank - 1
    walks = find_walks(graph)
    number = tiling.counts.prod(axis=1)
    touches = [touch(walk, tiling) for walk in walks]
    columns = _describe_all(touches, number) | _describe_misses(graph, walks, nest)
    read = sorted(touches[1:], key=lambda t: (-t.least, -t.walk.inner_stride(inner)))[:READ]
    named = dict(zip(("written", "read_0", "read_1"), [*touches[:1], *read], strict=False))
    for name in ("written", "read_0", "read_1"):
        columns |= _describe_one(named.get(name), name, tiling, number)
    return columns


def touch(walk: Walk, tiling: Tiling) -> Touch:
    """Return the part of a tensor that each configuration's tile touches, counted in elements,
    cache lines and pages."""
    box = walk.box(tiling.tiles)
    return Touch(
        walk,
        elements=box.prod(axis=1),
        lines=count_blocks(walk, box, LINE),
        pages=count_blocks(walk, box, PAGE),
        run=_contiguous(walk, box),
        trips=_count_trips(walk, tiling),
        least=float(count_blocks(walk, walk.sizes[None], LINE)[0]),
    )


def _contiguous(walk: Walk, box: np.ndarray) -> np.ndarray:
    """Return the number of contiguous elements (configs,) in a tensor's `box` (configs, rank)."""
    run, whole = np.ones(len(box)), np.ones(len(box), bool)
    for dimension in reversed(range(len(walk.sizes))):
        run = np.where(whole, run * box[:, dimension], run)
        whole &= box[:, dimension] >= walk.sizes[dimension]
    return run


def _count_trips(walk: Walk, tiling: Tiling) -> np.ndarray:
    """Return the number of tiles (configs,) that load their part of a tensor, because it differs
    from the previous tile's part."""
    follows, counts = walk.follows(), tiling.counts
    trips, runs = np.ones(len(counts)), np.ones(len(counts))
    for loop in (*range(MAX_RANK), *range(WINDOW, NUM_LOOPS), REDUCTION):
        runs = runs * counts[:, loop]
        if follows[loop]:
            trips = np.where(counts[:, loop] > 1, runs, trips)
    return trips


def _describe_all(touches: list[Touch], number: np.ndarray) -> dict[str, np.ndarray]:
    zero = np.zeros(len(number))
    least = max(1.0, sum(item.least for item in touches))
    working = sum((item.lines for item in touches), zero) * LINE
    moved = sum((item.lines * number for item in touches), zero) / least
    kept = sum((item.lines * item.trips for item in touches), zero) / least
    return {
        "working_set": np.log1p(working),
        **{f"over_{name}": np.log(np.maximum(1, working / s)) for name, s in SIZES.items()},
        "pages": np.log1p(sum((item.pages for item in touches), zero)),
        "traffic": np.log(np.maximum(moved, 1e-6)),
        "traffic_kept": np.log(np.maximum(kept, 1e-6)),
    }


def _describe_misses(graph: Graph, walks: list[Walk], nest: Nest) -> dict[str, np.ndarray]:
    misses, columns = _count_misses(walks, nest), {}
    # {bytes of a block: number of blocks of all tensors together}
    least = {
        block: sum(float(count_blocks(walk, walk.sizes[None], block)[0]) for walk in walks)
        for block in BLOCKS
    }
    for name, cache in CACHES.items():
        recent, gradual = (part / max(least[cache.block], 1.0) for part in misses[name])
        columns[f"misses_{name}"], columns[f"gradual_{name}"] = np.log(recent), np.log(gradual)
    of_caches = {name: found.gradual for name, found in misses.items()}
    return columns | {"cycles": np.log(estimate_cycles(graph, nest, of_caches))}


def _count_misses(walks: list[Walk], nest: Nest) -> dict[str, Misses]:
    """Return {name in CACHES: number of misses}."""
    reached = reach(walks, nest)
    blocks = {  # counted once for each size of a block, because several caches share a size
        block: [count_blocks_of(each, block) for each in reached] for block in BLOCKS
    }
    return {n: count_misses(reached, blocks[c.block], nest, c) for n, c in CACHES.items()}


def _describe_one(
    item: Touch | None, name: str, tiling: Tiling, number: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the columns of one tensor, prefixed with `name`; zeros if there is no such tensor."""
    if item is None:
        return {f"{name}_{key}": np.zeros(len(number)) for key, _, _ in _OF_ONE}
    inner, cache = tiling.rank - 1, CACHES["first_level"]
    stride = item.walk.inner_stride(inner)
    sweep = 1 + (tiling.tiles[:, inner] - 1) * min(1.0, stride / LINE)
    room = cache.ways * distinct_sets(stride, cache)
    values = {
        "traffic": np.log(item.lines * number / item.least),
        "kept": np.log(item.lines * item.trips / item.least),
        "lines": np.log(item.lines),
        "pages": np.log(item.pages),
        "run": np.log(item.run),
        "use": np.log(item.elements * item.walk.element_bytes / (item.lines * LINE)),
        "stride": np.full(len(number), np.log1p(stride)),
        "sweep": np.log(sweep),
        "conflicts": np.log(np.maximum(1, sweep / room)),
    }
    return {f"{name}_{key}": value for key, value in values.items()}
