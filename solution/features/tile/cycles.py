"""What a configuration may take on a processor, by costs that are the same for all kernels.

A sum of what the innermost loop computes, what it takes to start it and the loop around it, and
what the caches and the table of pages do not have. Nothing of it is learned: the costs are round
numbers with which the sum orders the measured kernels about best, far from exact for one processor.
"""

from collections.abc import Mapping

import numpy as np

from solution.domain.graph import Graph
from solution.features.tile.cache import Nest
from solution.features.tile.loops import count_tails, innermost_loop, is_unit
from solution.features.tile.tiling import find_tiling

NUMBERS = 16  # float32 of a vector
VECTOR, NUMBER = 4.0, 1.0  # cycles of an iteration, with vectors and without
START = 20.0  # cycles to start the innermost loop, or the loop around it
MISS = {"first_level": 4.0, "second_level": 15.0, "page_table": 20.0}  # cycles


def estimate_cycles(graph: Graph, nest: Nest, misses: Mapping[str, np.ndarray]) -> np.ndarray:
    """Cycles (configs,) of one iteration.

    Args:
        nest: the graph's.
        misses: (configs,) blocks that each cache brings in.
    """
    tiling = find_tiling(graph)
    work = NUMBER * np.ones(len(tiling.tiles))
    if is_unit(graph):
        work = VECTOR / NUMBERS * count_tails(tiling, innermost_loop(graph), NUMBERS)
    starts = nest.executions[:2].sum(axis=0)
    waits = sum(cycles * misses[name] for name, cycles in MISS.items())
    return work + (START * starts + waits) / tiling.extents.prod()
