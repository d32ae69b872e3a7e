"""Baselines, the lower bound, and the search that is to beat them."""

import itertools

import numpy as np
import pytest

from benchmarks.go_cpsat import solve
from benchmarks.go_hdp import HdpSettings, place_hierarchically
from benchmarks.go_methods import breed, search_at_random
from solution.placement.baselines.annealing import anneal
from solution.placement.baselines.divisions import divide_as_a_person, divide_by_metis
from solution.placement.baselines.earliest import rank_upward, schedule_by_insertion
from solution.placement.baselines.lists import find_tasks, plan_cpop
from solution.placement.evaluation import TWO_TASKS, Evaluator
from solution.placement.graphs.cost_graph import build_cost_graph
from solution.placement.graphs.workloads import WORKLOADS
from solution.placement.machine import Machine, make_machine
from solution.placement.optimize import optimize
from solution.placement.placement_report import optimize_and_report
from solution.placement.simulation.decision import Decision, StepResult
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_graph, make_unequal_machine


def test_cpop_puts_the_critical_path_on_one_device() -> None:
    columns = make_columns(40, 3)._replace(fusion_kinds=np.zeros(40, np.uint8))  # all run a kernel
    graph = build_cost_graph("kernels", columns, make_graph(40, 3).edges)
    machine = make_unequal_machine(3, 3)
    tasks = find_tasks(graph, machine)
    plan = plan_cpop(tasks)
    for consumer, producer in graph.edges.tolist():
        sent = (plan.placement[consumer] != plan.placement[producer]) * tasks.transfer[producer]
        assert plan.start[consumer] >= plan.end[producer] + sent - 1e-12
    assert len(np.unique(plan.placement)) > 1


def test_a_person_divides_by_layers_or_by_cost() -> None:
    graph = WORKLOADS["rnnlm-4-small"].make()
    layers = divide_as_a_person(graph, make_machine(2), by_cost=False)
    assert (layers == graph.stages // 2).all()
    cost = find_tasks(graph, make_machine(1)).seconds[:, 0]
    equal = divide_as_a_person(graph, make_machine(2), by_cost=True)
    shares = np.bincount(equal, cost) / cost.sum()
    assert (shares > 0.25).all()


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 9, 16])
def test_metis_says_nothing_of_small_graphs(nodes: int, capfd: pytest.CaptureFixture[str]) -> None:
    for devices in (2, 4, 8):
        part = divide_by_metis(make_graph(nodes, nodes), make_machine(devices))
        assert part.shape == (nodes,)
        assert 0 <= part.min() <= part.max() < devices
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("seed", range(10))
def test_nothing_beats_the_bound(seed: int) -> None:
    graph, machine = make_graph(12, seed), make_unequal_machine(2, seed)
    for tasks in (TWO_TASKS, ("fusion", *TWO_TASKS), ("schedule",), ("fusion", "schedule")):
        report = optimize_and_report(graph, machine, tasks, None, 200, seed)
        assert 0 < report.bound <= report.evaluator.seconds * (1 + 1e-12)
    # all on one device, without fusion: a schedule that never waits is the best
    alone = optimize_and_report(graph, machine, ("schedule",), None, 9, seed)
    assert len(set(alone.line.placement)) > 1 or alone.bound == pytest.approx(
        alone.evaluator.seconds
    )


@pytest.mark.parametrize("search", [search_at_random, anneal, breed])
def test_a_search_spends_its_evaluations_and_repeats_itself(search: object) -> None:
    assert callable(search)
    evaluator = Evaluator(Environment(make_graph(30, 1), make_machine(2)))
    search(evaluator, 60, 3)
    again = evaluator.start_again()
    search(again, 60, 3)
    assert len(evaluator.curve) == 60 and evaluator.curve == again.curve
    assert (np.diff(evaluator.curve) <= 0).all()


def test_hdp_learns_on_a_recurrent_network() -> None:
    class Noting(Evaluator):
        def judge(self, decision: Decision) -> StepResult:
            outcome = super().judge(decision)
            drawn.append(outcome.seconds)
            return outcome

    drawn: list[float] = []
    environment = Environment(WORKLOADS["rnnlm-2-small"].make(), make_machine(2))
    evaluator = Noting(environment, ("placement",))
    place_hierarchically(evaluator, 240, 0, HdpSettings(groups=32))
    assert np.mean(drawn[-80:]) < 0.6 * np.mean(drawn[:80])


def find_best_of_all(environment: Environment) -> float:
    """By brute force over devices and orders of kernels."""
    count = environment.graph.num_nodes
    zeros = np.zeros(count, np.int64)
    orders = [np.array(order, float) for order in itertools.permutations(range(4))]
    return min(
        environment.runtime(Decision(np.array(placement), np.resize(order, count), zeros)).seconds
        for placement in itertools.product(range(2), repeat=count)
        for order in orders[::6]
    )


@pytest.mark.parametrize("seed", range(2))
def test_the_optimum_of_eight_nodes_on_two_devices_is_reached(seed: int) -> None:
    environment = Environment(make_graph(8, seed), make_unequal_machine(2, seed))
    evaluator = Evaluator(environment, TWO_TASKS)
    optimize(evaluator, None, 2000)
    assert evaluator.seconds <= find_best_of_all(environment) * (1 + 1e-12)


def test_a_task_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="are fusion"):
        Evaluator(Environment(make_graph(5, 1), make_machine(1)), ("sleep",))
    with pytest.raises(InputError, match="device 'x9'"):
        make_machine(2, "x9")
    with pytest.raises(InputError, match="machine.*0"):
        Machine(())


@pytest.mark.parametrize("seed", range(3))
def test_the_proven_optimum_of_small_graphs_is_nearly_reached(seed: int) -> None:
    pytest.importorskip("ortools")
    environment = Environment(make_graph(12, seed), make_unequal_machine(2, seed))
    found = solve(environment, 20)
    evaluator = Evaluator(environment, TWO_TASKS)
    optimize(evaluator, None, 2000)
    assert found.is_proven and found.bound <= evaluator.seconds * (1 + 1e-9)
    assert evaluator.seconds <= 1.03 * environment.runtime(found.decision).seconds


# The seconds at which SAGA's HeftScheduler (another library) ends, seed by seed.
ENDS = (
    121.454707504, 35.655278401, 73.127222425, 73.561523082, 46.125768611, 45.375474593,
    55.697281724, 52.48398563, 54.610564559, 39.703396644, 59.001089762, 21.902313242,
    56.56458856, 64.870153086, 23.335163616, 58.916361813, 59.648334439, 53.314680046,
    79.765676451, 59.132593621, 102.326236883, 30.462840525, 68.984084725, 18.003529632,
    48.299632812, 101.390871089, 75.507694917, 13.241304231, 49.512234608, 83.673395104,
    29.466364674, 43.724419406, 86.862972281, 54.565323897, 26.552892629, 23.616465055,
    40.465427445, 23.123775394, 31.812272638, 82.193868658,
)  # fmt: skip


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """Seconds (tasks, devices), those to send a result (tasks,), and who is read by whom."""
    generator = np.random.default_rng(seed)
    tasks, devices = int(generator.integers(5, 40)), int(generator.integers(2, 5))
    speeds = generator.uniform(0.5, 2.0, devices)
    costs, transfers = generator.uniform(1, 10, tasks), generator.uniform(0.1, 8, tasks)
    edges = []
    for reader in range(1, tasks):
        count = min(reader, int(generator.integers(1, 4)))
        edges += [(int(p), reader) for p in sorted(generator.choice(reader, count, replace=False))]
    return costs[:, None] / speeds, transfers, edges


@pytest.mark.parametrize("seed", range(len(ENDS)))
def test_heft_ends_when_that_of_another_library_does(seed: int) -> None:
    seconds, transfers, edges = draw(seed)
    tasks, devices = seconds.shape
    producers = list_neighbours(tasks, [(reader, read) for read, reader in edges])
    # Of all pairs of devices, those of a device with itself among them, these are apart.
    apart = (devices - 1) / (devices + 1)
    consumers = list_neighbours(tasks, edges)
    ranks = rank_upward(seconds.mean(axis=1), apart * transfers, *consumers)
    order, nobody = np.argsort(-ranks, kind="stable"), np.full(tasks, -1)
    given = (order, seconds, transfers, *producers, np.arange(tasks), nobody)
    assert schedule_by_insertion(*given)[2].max() == pytest.approx(ENDS[seed], rel=1e-9)


def list_neighbours(tasks: int, pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Of each task the second of its pairs, one task after the other, and where each begins."""
    ordered = np.array(sorted(pairs))
    counts = np.bincount(ordered[:, 0], minlength=tasks)
    return np.append(0, np.cumsum(counts)), ordered[:, 1].copy()
