"""Baselines, the lower bound, and the search that is to beat them."""

import itertools

import numpy as np
import pytest

from solution.placement.baselines.bounds import find_bound
from solution.placement.baselines.divisions import divide_as_a_person, divide_by_metis
from solution.placement.baselines.hierarchical import HdpSettings, place_hierarchically
from solution.placement.baselines.insertion import Tasks
from solution.placement.baselines.lists import find_tasks, list_decisions, plan_cpop, plan_heft
from solution.placement.baselines.searches import anneal, breed, search_at_random
from solution.placement.evaluation import TWO_TASKS, Evaluator
from solution.placement.graphs.cost_graph import CostGraph, build_cost_graph
from solution.placement.graphs.workloads import SMALL, WORKLOADS
from solution.placement.machine import Machine, make_machine
from solution.placement.search import optimize
from solution.placement.simulation.decision import Decision, Outcome
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_graph, make_unequal_machine


def make_kernels(count: int, seed: int) -> CostGraph:
    """A graph in which every node runs a kernel."""
    graph = make_graph(count, seed)
    columns = make_columns(count, seed)._replace(fusion_kinds=np.zeros(count, np.uint8))
    return build_cost_graph("kernels", columns, graph.edges)


@pytest.mark.parametrize("seed", range(12))
def test_heft_is_as_an_obvious_one_says(seed: int) -> None:
    graph, machine = make_kernels(30, seed), make_unequal_machine(3, seed)
    tasks = find_tasks(graph, machine)
    plan, slow = plan_heft(tasks), heft_slowly(tasks)
    assert plan.placement.tolist() == slow[0]
    assert plan.end.tolist() == pytest.approx(slow[1], rel=1e-12)


def heft_slowly(tasks: Tasks) -> tuple[list[int], list[float]]:
    count, devices = tasks.seconds.shape
    start, of = tasks.consumers
    readers = [of[start[t] : start[t + 1]].tolist() for t in range(count)]
    reads = [[p for p in range(count) if t in readers[p]] for t in range(count)]
    rank = [0.0] * count
    for t in reversed(range(count)):
        longest = max((tasks.transfer[t] + rank[r] for r in readers[t]), default=0.0)
        rank[t] = tasks.seconds[t].mean() + longest
    busy: list[list[tuple[float, float]]] = [[] for _ in range(devices)]
    home, end = [-1] * count, [0.0] * count
    for t in sorted(range(count), key=lambda t: (-rank[t], t)):
        options = []
        for d in range(devices):
            arrival = max((end[p] + (home[p] != d) * tasks.transfer[p] for p in reads[t]),
                          default=0.0)  # fmt: skip
            length = tasks.seconds[t, d]
            places = [arrival] + [e for _, e in busy[d] if e > arrival]
            begin = min(
                b for b in places
                if all(b + length <= s or e <= b for s, e in busy[d])
            )  # fmt: skip
            options.append((begin + length, d, begin))
        finish, device, begin = min(options)
        home[t], end[t] = device, finish
        busy[device].append((begin, finish))
    return home, end


def test_cpop_puts_the_critical_path_on_one_device() -> None:
    graph, machine = make_kernels(40, 3), make_unequal_machine(3, 3)
    tasks = find_tasks(graph, machine)
    plan = plan_cpop(tasks)
    for consumer, producer in graph.edges.tolist():
        sent = (plan.placement[consumer] != plan.placement[producer]) * tasks.transfer[producer]
        assert plan.start[consumer] >= plan.end[producer] + sent - 1e-12
    assert len(np.unique(plan.placement)) > 1


@pytest.mark.parametrize("tied", [True, False])
def test_every_list_scheduler_decides_what_runs(tied: bool) -> None:
    graph, machine = make_graph(60, 4, tied=tied), make_machine(3)
    environment = Environment(graph, machine)
    for decision in list_decisions(graph, machine, fused=True).values():
        assert environment.runtime(decision).reason is None
        assert (decision.placement == decision.placement[graph.leaders]).all()


def test_a_person_divides_by_layers_or_by_cost() -> None:
    graph = WORKLOADS["rnnlm-4-small"].make()
    layers = divide_as_a_person(graph, make_machine(2), by_cost=False)
    assert (layers == graph.stages // 2).all()
    cost = find_tasks(graph, make_machine(1)).seconds[:, 0]
    equal = divide_as_a_person(graph, make_machine(2), by_cost=True)
    shares = np.bincount(equal, cost) / cost.sum()
    assert (shares > 0.25).all()


def test_metis_cuts_less_than_chance() -> None:
    graph = WORKLOADS["rnnlm-2-small"].make()
    part = divide_by_metis(graph, make_machine(2))
    sent = graph.output_bytes[graph.edges[:, 1]]
    cut = sent[part[graph.edges[:, 0]] != part[graph.edges[:, 1]]].sum()
    assert cut < 0.25 * sent.sum() and set(part.tolist()) == {0, 1}


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 9, 16])
def test_metis_says_nothing_of_graphs_as_small_as_the_machine(
    nodes: int, capfd: pytest.CaptureFixture[str]
) -> None:
    for devices in (2, 4, 8):
        part = divide_by_metis(make_graph(nodes, nodes), make_machine(devices))
        assert part.shape == (nodes,)
        assert 0 <= part.min() <= part.max() < devices
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("seed", range(10))
def test_nothing_beats_the_bound(seed: int) -> None:
    graph, machine = make_graph(12, seed), make_unequal_machine(2, seed)
    for tasks in (TWO_TASKS, ("fusion", *TWO_TASKS)):
        evaluator = Evaluator(Environment(graph, machine), tasks)
        anneal(evaluator, 200, seed)
        bound = find_bound(graph, machine, fused="fusion" in tasks)
        assert 0 < bound <= evaluator.seconds * (1 + 1e-12)


@pytest.mark.parametrize("search", [search_at_random, anneal, breed])
def test_a_search_spends_its_evaluations_and_repeats_itself(search: object) -> None:
    assert callable(search)
    evaluator = Evaluator(Environment(make_graph(30, 1), make_machine(2)))
    search(evaluator, 60, 3)
    again = evaluator.start_again()
    search(again, 60, 3)
    assert len(evaluator.curve) == 60 and evaluator.curve == again.curve
    assert (np.diff(evaluator.curve) <= 0).all()


def test_hdp_spends_its_evaluations() -> None:
    evaluator = Evaluator(Environment(make_graph(20, 1), make_machine(2)), ("placement",))
    place_hierarchically(evaluator, 30, 0, HdpSettings(groups=8, width=16, samples=4))
    assert len(evaluator.curve) == 30 and evaluator.best is not None
    again = evaluator.start_again()
    place_hierarchically(again, 30, 0, HdpSettings(groups=8, width=16, samples=4))
    assert again.curve == evaluator.curve


def test_hdp_learns_on_a_recurrent_network() -> None:
    class Noting(Evaluator):
        def judge(self, decision: Decision) -> Outcome:
            outcome = super().judge(decision)
            drawn.append(outcome.seconds)
            return outcome

    drawn: list[float] = []
    graph = next(work for work in SMALL if work.name == "rnnlm-2-small").make()
    evaluator = Noting(Environment(graph, make_machine(2)), ("placement",))
    place_hierarchically(evaluator, 240, 0)
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


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_of_eight_nodes_on_two_devices_is_reached(seed: int) -> None:
    environment = Environment(make_graph(8, seed), make_unequal_machine(2, seed))
    evaluator = Evaluator(environment, TWO_TASKS)
    optimize(evaluator, None, 2000)
    assert evaluator.seconds <= find_best_of_all(environment) * (1 + 1e-12)


def test_a_search_is_never_worse_than_heft_nor_than_any_of_the_first() -> None:
    graph, machine = make_graph(120, 6), make_machine(4)
    evaluator = Evaluator(Environment(graph, machine))
    first = optimize(evaluator, None, 150)
    assert len(evaluator.curve) == 150
    heft = list_decisions(graph, machine, fused=True)["heft"]
    assert evaluator.seconds <= evaluator.environment.runtime(heft).seconds
    assert evaluator.seconds <= min(candidate.seconds for candidate in first)


def test_another_device_makes_the_best_known_no_worse() -> None:
    """A decision for fewer devices is one for more."""
    graph = make_graph(40, 8)
    few = Evaluator(Environment(graph, make_machine(2)))
    optimize(few, None, 200)
    assert few.best is not None
    many = Evaluator(Environment(graph, make_machine(3)))
    assert many.evaluate(few.best) == few.seconds


def test_a_task_that_is_not_asked_for_stays_as_it_was() -> None:
    graph = make_graph(50, 2)
    evaluator = Evaluator(Environment(graph, make_machine(2)), ("schedule",))
    optimize(evaluator, None, 100)
    assert evaluator.best is not None
    assert (evaluator.best.placement == 0).all() and (evaluator.best.fusion == 0).all()


def test_a_task_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="There is no task 'sleep'. There are fusion, placement"):
        Evaluator(Environment(make_graph(5, 1), make_machine(1)), ("sleep",))
    with pytest.raises(InputError, match="There is no device 'x9'"):
        make_machine(2, "x9")
    with pytest.raises(InputError, match="A machine of 0 devices"):
        Machine(())


@pytest.mark.parametrize("seed", range(3))
def test_the_proven_optimum_of_small_graphs_is_nearly_reached(seed: int) -> None:
    pytest.importorskip("ortools")
    from solution.placement.baselines.constraint import solve

    environment = Environment(make_graph(12, seed), make_unequal_machine(2, seed))
    found = solve(environment, 20)
    evaluator = Evaluator(environment, TWO_TASKS)
    optimize(evaluator, None, 2000)
    assert found.is_proven and found.bound <= evaluator.seconds * (1 + 1e-9)
    assert evaluator.seconds <= 1.03 * environment.runtime(found.decision).seconds
