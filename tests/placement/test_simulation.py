"""The simulator says what a slow and obvious one says, and refuses what cannot run."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.placement.graphs.cost_graph import DATA, build_cost_graph
from solution.placement.machine import Device, Machine, make_machine
from solution.placement.simulation.decision import Decision, default_decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import (
    make_columns,
    make_decision,
    make_edges,
    make_graph,
    make_unequal_machine,
)
from tests.placement.slow_simulator import SlowSimulator


@pytest.mark.parametrize("seed", range(200))
def test_equal_to_the_slow_simulator_to_the_last_digit(seed: int) -> None:
    graph = make_graph(2 + seed % 41, seed, tied=seed % 2 == 0)
    machine = make_unequal_machine(1 + seed % 4, seed)
    decision = make_decision(graph, len(machine), seed)
    found = Environment(graph, machine).runtime(decision)
    slow = SlowSimulator(graph, machine, decision)
    assert found.seconds == slow.seconds
    assert found.peak_bytes.tolist() == slow.peaks
    timeline = Environment(graph, machine).timeline(decision)
    assert timeline.groups.tolist() == slow.kernel
    assert timeline.outcome.seconds == slow.seconds


def test_one_device_without_fusion_takes_the_sum_of_the_times() -> None:
    graph, device = make_graph(60, 3), Device("one", 1e12, 1e11, 5e-6, 1e12)
    found = Environment(graph, Machine((device,))).runtime(default_decision(graph))
    runs = graph.fusion_kinds != DATA
    times = np.maximum(graph.operations / 1e12, graph.traffic_bytes / 1e11) + 5e-6
    assert found.seconds == pytest.approx(times[runs].sum(), rel=1e-12)


def test_a_device_that_is_not_used_changes_nothing() -> None:
    graph = make_graph(60, 4)
    decision = make_decision(graph, 2, 1)
    seconds = {Environment(graph, make_machine(k)).runtime(decision).seconds for k in (2, 3, 5)}
    assert len(seconds) == 1


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_no_fusion_is_slower_than_none_on_one_device(seed: int) -> None:
    graph = make_graph(40, seed)
    environment = Environment(graph, make_machine(1))
    decision = make_decision(graph, 1, seed)
    alone = dataclasses.replace(decision, fusion=np.zeros_like(decision.fusion))
    fused, unfused = environment.runtime(decision).seconds, environment.runtime(alone).seconds
    assert fused <= unfused * (1 + 1e-12)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_timeline_keeps_every_rule(seed: int) -> None:
    graph, machine = make_graph(50, seed), make_machine(3)
    line = Environment(graph, machine).timeline(make_decision(graph, 3, seed))
    kernels = np.flatnonzero((line.groups == np.arange(50)) & (graph.fusion_kinds != DATA))
    for device in range(3):
        own = kernels[line.placement[kernels] == device]
        own = own[np.argsort(line.start[own], kind="stable")]
        assert (line.start[own][1:] >= line.end[own][:-1]).all()
    arrival = {(t.node, t.target): t.end for t in line.transfers}
    for consumer, producer in graph.edges.tolist():
        if line.groups[consumer] == line.groups[producer]:
            continue
        there = arrival.get((producer, line.placement[consumer]), line.end[producer])
        assert line.start[consumer] >= there
    for one in line.transfers:
        assert one.start >= line.end[one.node]
        for other in line.transfers:
            if one is not other and (one.source, one.target) == (other.source, other.target):
                assert one.end <= other.start or other.end <= one.start


def test_a_tensor_is_sent_once_to_each_device() -> None:
    graph = make_graph(80, 9)
    line = Environment(graph, make_machine(4)).timeline(make_decision(graph, 4, 2))
    sent = [(t.node, t.target) for t in line.transfers]
    assert len(sent) == len(set(sent)) > 0


def test_an_overfull_device_is_named() -> None:
    graph = make_graph(30, 1)
    machine = make_unequal_machine(2, 1, memory=1e6)
    found = Environment(graph, machine).runtime(make_decision(graph, 2, 1))
    assert found.reason is not None and "overfull" in found.reason and "device" in found.reason


def test_a_cycle_is_named() -> None:
    edges = np.array([[1, 0], [2, 1], [3, 2], [1, 3]])
    with pytest.raises(InputError, match=r"has a cycle; 3 nodes .*among them 1, 2, 3"):
        build_cost_graph("ring", make_columns(4, 0), edges)


def test_a_split_fusion_and_fusions_that_wait_for_each_other_are_named() -> None:
    columns = make_columns(4, 0)._replace(fusion_kinds=np.ones(4, np.uint8))
    graph = build_cost_graph("chain", columns, np.array([[1, 0], [2, 1], [3, 2]]))
    environment = Environment(graph, make_machine(2))
    decision = default_decision(graph)
    with pytest.raises(InputError, match="form a cycle"):
        environment.timeline(decision, np.array([0, 1, 0, 1]))
    split = dataclasses.replace(decision, placement=np.array([0, 1, 1, 1]))
    with pytest.raises(InputError, match=r"split fusion: 0 has node 1 on device 1 and node 0 on"):
        environment.timeline(split, np.array([0, 0, 1, 2]))
    whole = environment.timeline(decision, np.zeros(4, np.int64))
    levels = dataclasses.replace(decision, fusion=np.ones(4, np.int64))
    assert whole.outcome.seconds == environment.runtime(levels).seconds


@pytest.mark.parametrize("what", ["placement", "fusion"])
def test_a_number_that_is_not_there_is_named(what: str) -> None:
    graph = make_graph(10, 1)
    bad = dataclasses.replace(default_decision(graph), **{what: np.full(10, 99)})
    with pytest.raises(InputError, match="node 0 has the .* 99; there are 0 to"):
        Environment(graph, make_machine(2)).runtime(bad)


def test_renumbered_nodes_give_the_same_graph() -> None:
    columns, edges = make_columns(40, 5), make_edges(40, 5)
    shuffle = np.random.default_rng(0).permutation(40)
    place = np.argsort(shuffle)
    moved = type(columns)(*(column[shuffle] for column in columns))
    one, other = build_cost_graph("a", columns, edges), build_cost_graph("a", moved, place[edges])
    assert (one.edges == other.edges).all() and (one.operations == other.operations).all()
    assert (shuffle[other.numbers] == one.numbers).all()


def test_decisions_are_kept_by_whoever_asks() -> None:
    """Nothing is changed in place: the same question has the same answer."""
    graph = make_graph(50, 2)
    environment, decision = Environment(graph, make_machine(3)), make_decision(graph, 3, 3)
    before = [array.copy() for array in vars(decision).values()]
    first, again = environment.runtime(decision), environment.runtime(decision)
    assert first.seconds == again.seconds
    assert all((a == b).all() for a, b in zip(before, vars(decision).values(), strict=True))
    assert isinstance(decision, Decision)
