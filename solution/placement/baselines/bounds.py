"""What no decision can beat: the longest path, and the work over all devices."""

import numpy as np

from solution.placement.baselines.insertion import rank_upward
from solution.placement.baselines.lists import cost_alone
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import OPERATIONS, Machine


def find_bound(graph: CostGraph, machine: Machine, *, fused: bool) -> float:
    """Seconds that every valid decision takes at least.

    With fusion a kernel may save all its bytes and its launch, but no operation, and the first and
    last bytes are still read and written: then only operations count. Without, a kernel costs at
    least what it costs where it is fastest.
    """
    if fused:
        seconds = graph.operations[:, None] / machine.table[:, OPERATIONS]
        seconds[graph.fusion_kinds == DATA] = 0
    else:
        seconds = cost_alone(graph, machine)
    least = seconds.min(axis=1)
    path = rank_upward(least, np.zeros(len(least)), *graph.consumers).max(initial=0.0)
    return float(max(path, _share(seconds)))


def _share(seconds: np.ndarray) -> float:
    """All work, shared out. The harmonic mean would do for related devices; for unrelated ones a
    device that is the fastest at everything bounds each share: least seconds over the number."""
    return float(seconds.min(axis=1).sum() / seconds.shape[1])
