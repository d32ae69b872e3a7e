"""Lower bounds on a step's time: the critical path, and the total work divided by the devices."""

import numpy as np

from solution.placement.baselines.insertion import rank_upward
from solution.placement.baselines.lists import cost_alone
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import OPERATIONS, Machine


def find_bound(graph: CostGraph, machine: Machine, *, fused: bool) -> float:
    """Return a lower bound on the seconds of every valid decision.

    With fusion, a kernel may save all its memory traffic and its launch, so only its arithmetic
    counts. Without fusion, a kernel costs at least its time on the device that is fastest at it.
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
    """Return each kernel's least seconds, summed and divided by the number of devices.

    For related devices (one speed factor each) the harmonic mean would give a tighter bound. For
    unrelated ones this holds even if one device is the fastest at everything.
    """
    return float(seconds.min(axis=1).sum() / seconds.shape[1])
