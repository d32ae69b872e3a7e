"""Simplify a decision: remove arbitrary choices, so that a policy can imitate it.

A search leaves behind whatever it tried that cost nothing: single nodes on other devices, twenty
levels where two would do. A policy that imitates these learns noise.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from solution.placement.baselines.lists import rank_places
from solution.placement.evaluation import Evaluator
from solution.placement.simulation.decision import Decision

LOSS = 0.003  # maximum relative loss of runtime
SWEEPS = 3


def tidy(evaluator: Evaluator, decision: Decision) -> Decision:
    """Return a simpler decision that is at most LOSS slower.

    It tries one level for all fused nodes; upward ranks, or first come, first served, as
    priorities; and each node on the device of most of its neighbours.
    """
    environment = evaluator.environment
    limit = environment.runtime(decision).seconds * (1 + LOSS)

    def is_as_good(other: Decision) -> bool:
        outcome = environment.runtime(other)
        return outcome.reason is None and outcome.seconds <= limit

    for simpler in (_fuse_alike, _rank_alike):
        found = (evaluator.keep_fixed(one) for one in simpler(evaluator, decision))
        decision = next(filter(is_as_good, found), decision)
    if "placement" in evaluator.tasks:
        for _ in range(SWEEPS):
            before, decision = decision, _gather(evaluator, decision, is_as_good)
            if before is decision:
                break
    return decision


def _fuse_alike(evaluator: Evaluator, decision: Decision) -> Iterator[Decision]:
    """Yield decisions with one fusion level: for all nodes, or for those that are fused now."""
    kernels = evaluator.environment.timeline(decision).groups
    nodes = np.arange(evaluator.graph.num_nodes)
    for fused in (np.ones_like(nodes), (kernels != nodes).astype(np.int64)):
        yield replace(decision, fusion=fused)


def _rank_alike(evaluator: Evaluator, decision: Decision) -> Iterator[Decision]:
    ranks = rank_places(evaluator.graph, evaluator.machine)
    for priorities in (ranks, np.zeros_like(ranks)):
        yield replace(decision, priorities=priorities)


def _gather(
    evaluator: Evaluator, decision: Decision, is_as_good: Callable[[Decision], bool]
) -> Decision:
    """Move every node once to the device of most of its neighbours, if the result is as good."""
    graph, devices = evaluator.graph, len(evaluator.machine)
    for node in map(int, np.flatnonzero(graph.decides_device)):
        placement = decision.placement[graph.leaders]
        near = np.bincount(placement[graph.leaders[graph.neighbours(node)]], minlength=devices)
        if near.max() > near[placement[node]]:
            placement[node] = near.argmax()
            other = replace(decision, placement=placement[graph.leaders])
            decision = other if is_as_good(other) else decision
    return decision
