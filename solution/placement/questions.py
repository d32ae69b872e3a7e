"""What a policy is asked while it learns: drawn programs, on drawn numbers of devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import LESSONS, draw_judges, draw_lessons, identify
from solution.placement.graphs.workloads import STEPS as RECURRENT
from solution.placement.machine import make_machine
from solution.placement.policy.settings import MAX_HEAD
from solution.placement.simulation.environment import Environment

NUMBERS = range(2, MAX_HEAD + 1)  # of devices: the policy learns each, and can tell none between


@dataclass(frozen=True)
class Draw:
    """Programs of a size, drawn.

    Attributes:
        numbers: of devices on which each is asked about.
    """

    scale: int
    seed: int
    numbers: int
    families: frozenset[str] = frozenset(workload.family for workload in LESSONS)


# The larger a program, the longer it is searched: fewer questions of it. A recurrent network is as
# long as its steps, a thing that the others cannot teach.
DRAWS = (Draw(1, 0, 4), Draw(3, 11, 2), Draw(8, 12, 1, frozenset(RECURRENT)))
LARGEST = 11_000  # nodes


def draw_questions(counts: Sequence[int], leave_out: str = "") -> list[Evaluator]:
    """Drawn programs, none of which a policy is chosen by.

    Each is asked about on drawn numbers of devices, its own among them, for all tasks and for
    placement and schedule in turn.

    Args:
        counts: programs of each of DRAWS; those that are known, or too large, are left out.
        leave_out: a family.
    """
    random, tasks = np.random.default_rng(5), cycle((TASKS, TWO_TASKS))
    known = {identify(workload.name) for workload in (*draw_judges(), *LESSONS)}
    found = []
    for draw, count in zip(DRAWS, counts, strict=True):
        drawn = draw_lessons(count, draw.seed, draw.scale)
        drawn = [w for w in drawn if w.family in draw.families and identify(w.name) not in known]
        known |= {identify(workload.name) for workload in drawn}
        for workload in drawn:
            numbers = random.permutation(NUMBERS)[: draw.numbers]
            if workload.devices not in numbers:
                numbers[random.integers(len(numbers))] = workload.devices
            if workload.family == leave_out:
                continue
            graph = workload.make()
            if graph.num_nodes <= LARGEST:
                found += [Evaluator(Environment(graph, make_machine(int(number))), next(tasks))
                          for number in numbers]  # fmt: skip
    return found
