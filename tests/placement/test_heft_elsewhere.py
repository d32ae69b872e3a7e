"""HEFT beside an independent library's: SAGA's (`anrg.saga` 2.0.2), on random graphs.

    pip install anrg.saga                              in an environment of its own: it pins much
    python -m tests.placement.test_heft_elsewhere      prints what it finds

SAGA's mean transfer counts one from a device to itself, which takes no time, as the paper's does
not; so its ranks are ours of shorter transfers. All else is the same to the last digit. Its CPoP
is no reference: its downward rank adds a task's own cost for its producer's.
"""

from typing import NamedTuple

import numpy as np
import pytest

# The end of all, seed by seed.
ENDS = (
    121.454707504, 35.655278401, 73.127222425, 73.561523082, 46.125768611, 45.375474593,
    55.697281724, 52.48398563, 54.610564559, 39.703396644, 59.001089762, 21.902313242,
    56.56458856, 64.870153086, 23.335163616, 58.916361813, 59.648334439, 53.314680046,
    79.765676451, 59.132593621, 102.326236883, 30.462840525, 68.984084725, 18.003529632,
    48.299632812, 101.390871089, 75.507694917, 13.241304231, 49.512234608, 83.673395104,
    29.466364674, 43.724419406, 86.862972281, 54.565323897, 26.552892629, 23.616465055,
    40.465427445, 23.123775394, 31.812272638, 82.193868658,
)  # fmt: skip


class Instance(NamedTuple):
    """Tasks on devices of unequal speed, all of them linked."""

    speeds: np.ndarray  # (devices,)
    costs: np.ndarray  # (tasks,)
    transfers: np.ndarray  # (tasks,) of its output to another device
    edges: list[tuple[int, int]]  # who is read by whom; ascending


def draw(seed: int) -> Instance:
    generator = np.random.default_rng(seed)
    tasks, devices = int(generator.integers(5, 40)), int(generator.integers(2, 5))
    speeds = generator.uniform(0.5, 2.0, devices)
    costs, transfers = generator.uniform(1, 10, tasks), generator.uniform(0.1, 8, tasks)
    edges = []
    for reader in range(1, tasks):
        count = min(reader, int(generator.integers(1, 4)))
        edges += [(int(p), reader) for p in sorted(generator.choice(reader, count, replace=False))]
    return Instance(speeds, costs, transfers, edges)


@pytest.mark.parametrize("seed", range(len(ENDS)))
def test_heft_ends_when_that_of_another_library_does(seed: int) -> None:
    # Here, so that the environment which has SAGA need not have numba.
    from solution.placement.baselines.insertion import rank_upward, schedule_by_insertion

    found = draw(seed)
    tasks, devices = len(found.costs), len(found.speeds)
    seconds = found.costs[:, None] / found.speeds
    producers = list_neighbours(tasks, [(reader, read) for read, reader in found.edges])
    # Of all pairs of devices, those of a device with itself among them, these are apart.
    apart = (devices - 1) / (devices + 1)
    consumers = list_neighbours(tasks, found.edges)
    ranks = rank_upward(seconds.mean(axis=1), apart * found.transfers, *consumers)
    nobody = np.full(tasks, -1)
    _, _, ends = schedule_by_insertion(
        np.argsort(-ranks, kind="stable"), seconds, found.transfers, *producers,
        np.arange(tasks), nobody,
    )  # fmt: skip
    assert ends.max() == pytest.approx(ENDS[seed], rel=1e-9)


def list_neighbours(tasks: int, pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Of each task the second of its pairs, one task after the other, and where each begins."""
    ordered = np.array(sorted(pairs))
    counts = np.bincount(ordered[:, 0], minlength=tasks)
    return np.append(0, np.cumsum(counts)), ordered[:, 1].copy()


def ask_saga(found: Instance) -> float:
    """The end of all as SAGA schedules it."""
    from saga import Network, TaskGraph  # type: ignore[import-not-found]
    from saga.schedulers.heft import HeftScheduler  # type: ignore[import-not-found]

    names = [f"device {number}" for number in range(len(found.speeds))]
    links = [(one, other, 1.0) for place, one in enumerate(names) for other in names[place + 1 :]]
    network = Network.create(
        nodes=list(zip(names, found.speeds.tolist(), strict=True)), edges=links
    )
    tasks = [(f"task {number}", cost) for number, cost in enumerate(found.costs.tolist())]
    reads = [(f"task {a}", f"task {b}", float(found.transfers[a])) for a, b in found.edges]
    plan = HeftScheduler().schedule(network, TaskGraph.create(tasks=tasks, dependencies=reads))
    return max(task.end for own in plan.mapping.values() for task in own)


if __name__ == "__main__":
    print([round(ask_saga(draw(seed)), 9) for seed in range(40)])
