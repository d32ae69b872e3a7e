"""Work goes where there is time for it: what is reckoned of moves, and what comes of them."""

from dataclasses import replace

import numpy as np
import pytest

from solution.placement.baselines.divisions import decide_at_random, divide_as_a_person, place
from solution.placement.baselines.lists import cost_alone
from solution.placement.evaluation import INVALID, TWO_TASKS, Evaluator
from solution.placement.graphs.cost_graph import CostGraph, build_cost_graph
from solution.placement.graphs.workloads import WORKLOADS
from solution.placement.machine import Device, Machine, make_machine
from solution.placement.relief import Relief, find_alike, find_idle, relieve
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from tests.placement.made import make_columns, make_graph, make_unequal_machine


def make_fan(branches: int) -> CostGraph:
    """A node that all branches read, of which none reads another."""
    columns = make_columns(branches + 1, 0)
    columns = columns._replace(
        fusion_kinds=np.ones_like(columns.fusion_kinds),
        operations=np.full(branches + 1, 1e10),
        output_bytes=np.full(branches + 1, 1e3),
        resident_bytes=np.zeros(branches + 1),
    )
    edges = np.array([(branch, 0) for branch in range(1, branches + 1)])
    return build_cost_graph("fan", columns, edges)


def test_branches_are_shared_out_in_a_few_evaluations() -> None:
    evaluator = Evaluator(Environment(make_fan(24), make_machine(4)), ("placement",))
    alone = evaluator.evaluate(evaluator.base)
    relieve(evaluator, Relief(evaluator), evaluator.base, alone, 30)
    assert len(evaluator.curve) <= 31
    assert evaluator.seconds < 0.35 * alone  # a quarter of the work, and the node before it


def test_a_person_s_cut_of_an_unrolled_network_is_beaten() -> None:
    workload = WORKLOADS["rnnlm-2"]
    environment = Environment(workload.make(), make_machine(2))
    evaluator = Evaluator(environment, TWO_TASKS)
    cut = place(environment.graph, divide_as_a_person(environment.graph, environment.machine,
                                                      by_cost=False), fused=False)  # fmt: skip
    person = evaluator.evaluate(cut)
    relieve(evaluator, Relief(evaluator), cut, person, 40)
    assert evaluator.seconds < 0.95 * person


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_never_worse_and_counts_what_it_evaluates(seed: int, fused: bool) -> None:
    graph, machine = make_graph(60, seed, tied=True), make_unequal_machine(3, seed)
    evaluator = Evaluator(Environment(graph, machine))
    drawn = decide_at_random(graph, machine, np.random.default_rng(seed))
    start = drawn if fused else replace(drawn, fusion=np.zeros(graph.num_nodes, np.int64))
    begun = evaluator.evaluate(start)
    relieve(evaluator, Relief(evaluator), start, begun, 50)
    assert len(evaluator.curve) <= 51
    assert evaluator.best is not None
    assert evaluator.environment.runtime(evaluator.best).seconds == evaluator.seconds <= begun


def test_what_an_overfull_device_would_hold_is_not_moved_there() -> None:
    small = Device("small", 1e13, 1e12, 0.0, 1e5)
    large = replace(small, memory_bytes=1e12)
    evaluator = Evaluator(
        Environment(make_fan(12), Machine((large, replace(small, memory_bytes=5e2)))),
        ("placement",),
    )
    alone = evaluator.evaluate(evaluator.base)
    relieve(evaluator, Relief(evaluator), evaluator.base, alone, 20)
    assert evaluator.seconds == alone


@pytest.mark.parametrize("seed", [32, 43, 58])
def test_what_does_not_fit_is_no_gain_over_the_slowest_start(seed: int) -> None:
    """Which takes longer than what an invalid decision counts as."""
    large = Device("large", 1e13, 1e12, 1e-6, 1e12)
    graph = make_graph(20, seed)
    machine = Machine((large, replace(large, memory_bytes=2e7)), bandwidth=1e6)
    evaluator = Evaluator(Environment(graph, machine), ("placement",))
    start = decide_at_random(graph, machine, np.random.default_rng(seed))
    begun = evaluator.evaluate(start)
    assert INVALID * evaluator.reference < begun
    relieve(evaluator, Relief(evaluator), start, begun, 30)
    assert evaluator.seconds < begun


@pytest.mark.parametrize("seed", range(8))
def test_idle_time_is_what_no_kernel_fills(seed: int) -> None:
    graph, machine = make_graph(30, seed), make_unequal_machine(3, seed)
    drawn = decide_at_random(graph, machine, np.random.default_rng(seed))
    line = Environment(graph, machine).timeline(drawn)
    total = line.outcome.seconds
    since = np.array([0.0, 0.3 * total, total / 2, 0.99 * total, total, np.inf])
    found = find_idle(line, since, len(machine))
    for row, begin in enumerate(np.minimum(since, total)):
        for device in range(len(machine)):
            kernels = {
                line.groups[node] for node in range(graph.num_nodes)
                if line.placement[node] == device
            }  # fmt: skip
            busy = sum(max(line.end[k] - max(line.start[k], begin), 0) for k in kernels)
            assert found[row, device] == pytest.approx(total - begin - busy, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_kernel_takes_is_shared_out_over_its_nodes(seed: int) -> None:
    graph, machine = make_graph(40, seed), make_unequal_machine(3, seed)
    evaluator = Evaluator(Environment(graph, machine))
    drawn = decide_at_random(graph, machine, np.random.default_rng(seed))
    alone = evaluator.environment.timeline(replace(drawn, fusion=np.zeros(40, np.int64)))
    assert Relief(evaluator)._share_out(alone) == pytest.approx(cost_alone(graph, machine))
    fused = evaluator.environment.timeline(replace(evaluator.base, fusion=np.ones(40, np.int64)))
    own = Relief(evaluator)._share_out(fused)[np.arange(40), fused.placement]
    kernels = np.unique(fused.groups)
    shared = np.bincount(fused.groups, own, 40)
    assert len(kernels) < 40
    assert shared[kernels] == pytest.approx((fused.end - fused.start)[kernels])


@pytest.mark.parametrize("seed", range(4))
def test_what_would_be_sent_counts_each_tensor_once_a_device(seed: int) -> None:
    graph, machine = make_graph(40, seed), make_unequal_machine(3, seed)
    evaluator = Evaluator(Environment(graph, machine))
    random = np.random.default_rng(seed)
    placement, part = random.integers(0, 3, 40), random.integers(0, 7, 40)
    found = Relief(evaluator)._send(placement, part, 7)
    for one in range(7):
        for there in range(3):
            sent = set[tuple[int, int]]()  # what and to which device; -1: to this part
            for reader, producer in graph.edges.tolist():
                if part[reader] == one != part[producer] and placement[producer] != there:
                    sent.add((producer, -1))
                if part[producer] == one != part[reader] and placement[reader] != there:
                    sent.add((producer, int(placement[reader])))
            total = sum(graph.output_bytes[producer] for producer, _ in sent)
            assert found[one, there] == pytest.approx(total / machine.bandwidth)


def test_the_steps_of_an_unrolled_network_are_alike() -> None:
    graph = WORKLOADS["rnnlm-2"].make()
    alike = find_alike(graph)
    seconds = cost_alone(graph, make_machine(2))[:, 0]
    sizes = np.bincount(alike)
    assert len(sizes) < graph.num_nodes / 20
    for one in np.unique(alike[seconds > np.quantile(seconds, 0.9)]):
        members = np.flatnonzero(alike == one)
        assert len(set(graph.opcodes[members])) == len(set(graph.stages[members])) == 1
        assert len(set(seconds[members])) == 1


def test_one_device_is_left_as_it_is() -> None:
    """There is nowhere to go."""
    evaluator = Evaluator(Environment(make_fan(5), make_machine(1)), ("placement",))
    alone = evaluator.evaluate(evaluator.base)
    relieve(evaluator, Relief(evaluator), evaluator.base, alone, 10)
    assert len(evaluator.curve) == 1


def test_the_decision_it_begins_with_stays_as_it_was() -> None:
    evaluator = Evaluator(Environment(make_fan(8), make_machine(2)), ("placement",))
    start = Decision(np.zeros(9, np.int64), np.zeros(9), np.zeros(9, np.int64))
    relieve(evaluator, Relief(evaluator), start, evaluator.evaluate(start), 10)
    assert not start.placement.any()
