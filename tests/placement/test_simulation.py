"""The simulator says what a slow and obvious one says, and refuses what cannot run."""

import dataclasses
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.go_methods import decide_at_random
from solution.commands.options import read_only_module
from solution.domain.vocabulary import OPCODE_IDS
from solution.placement.graphs.architectures import make_gnmt
from solution.placement.graphs.builder import ProgramBuilder
from solution.placement.graphs.cost_graph import DATA, PRODUCT, CostGraph, build_cost_graph
from solution.placement.graphs.graph_files import read_cost_graph
from solution.placement.graphs.workloads import DOCUMENT, SMALL, WORKLOADS
from solution.placement.machine import make_machine
from solution.placement.policy.graph_inputs import LANDMARKS, WAYS, find_distances
from solution.placement.simulation.decision import Decision, default_decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.made import modules
from tests.made.graphs import make_layout_graph, to_arrays, write_graph
from tests.placement.made import make_columns, make_decision, make_graph, make_unequal_machine
from tests.placement.slow_simulator import SlowSimulator


@pytest.mark.parametrize("seed", range(80))
def test_equal_to_the_slow_simulator_to_the_last_digit(seed: int) -> None:
    graph = make_graph(2 + seed % 41, seed, tied=seed % 2 == 0)
    machine = make_unequal_machine(1 + seed % 4, seed)
    decision, environment = make_decision(graph, len(machine), seed), Environment(graph, machine)
    found, timeline = environment.runtime(decision), environment.timeline(decision)
    slow = SlowSimulator(graph, machine, decision)
    assert found.seconds == timeline.outcome.seconds == slow.seconds
    assert found.peak_bytes.tolist() == slow.peaks
    assert timeline.groups.tolist() == slow.kernel


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_the_timeline_keeps_every_rule(seed: int) -> None:
    """And a tensor is sent once to each device."""
    graph, machine = make_graph(50, seed), make_machine(3)
    line = Environment(graph, machine).timeline(make_decision(graph, 3, seed))
    kernels = np.flatnonzero((line.groups == np.arange(50)) & (graph.fusion_kinds != DATA))
    for device in range(3):
        own = kernels[line.placement[kernels] == device]
        own = own[np.argsort(line.start[own], kind="stable")]
        assert (line.start[own][1:] >= line.end[own][:-1]).all()
    arrival = {(t.node, t.target): t.end for t in line.transfers}
    assert len(arrival) == len(line.transfers) > 0
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


def test_an_overfull_device_is_named() -> None:
    graph = make_graph(30, 1)
    environment = Environment(graph, make_unequal_machine(2, 1, memory=1e6))
    found = environment.runtime(make_decision(graph, 2, 1))
    assert found.reason is not None and "overfull" in found.reason and "device" in found.reason


def test_a_cycle_is_named() -> None:
    edges = np.array([[1, 0], [2, 1], [3, 2], [1, 3]])
    with pytest.raises(InputError, match="cycle.*3.*1.*2"):
        build_cost_graph("ring", make_columns(4, 0), edges)


@pytest.mark.parametrize("what", ["placement", "fusion"])
def test_a_number_that_is_not_there_is_named(what: str) -> None:
    graph = make_graph(10, 1)
    bad = dataclasses.replace(default_decision(graph), **{what: np.full(10, 99)})
    with pytest.raises(InputError, match="node.*0.*99.*0"):
        Environment(graph, make_machine(2)).runtime(bad)


def test_decisions_are_kept_by_whoever_asks() -> None:
    """Nothing is changed in place: the same question has the same answer."""
    graph = make_graph(50, 2)
    environment, decision = Environment(graph, make_machine(3)), make_decision(graph, 3, 3)
    before = [array.copy() for array in vars(decision).values()]
    first, again = environment.runtime(decision), environment.runtime(decision)
    assert first.seconds == again.seconds
    assert all((a == b).all() for a, b in zip(before, vars(decision).values(), strict=True))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_it_leaves_no_moment_of_the_step_out(seed: int, fused: bool) -> None:
    graph = make_graph(8 + seed, seed)
    machine = make_unequal_machine(2 + seed % 3, 2, 1e12) if seed % 3 else make_machine(3)
    environment = Environment(graph, machine)
    drawn = decide_at_random(graph, machine, np.random.default_rng(seed))
    levels = drawn.fusion if fused else np.zeros(graph.num_nodes, np.int64)
    decision = Decision(drawn.placement, drawn.priorities, levels)
    critical = set(environment.find_critical(decision).tolist())
    line = environment.timeline(decision)
    busy = [(line.start[node], line.end[node]) for node in critical]
    busy += [(sent.start, sent.end) for sent in line.transfers if sent.node in critical]
    known = 0.0
    for start, end in sorted(busy):
        assert start <= known
        known = max(known, end)
    assert known == line.outcome.seconds


def walk(graph: CostGraph, start: int, way: str) -> np.ndarray:
    """The slow and obvious one: a queue."""
    found, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for consumer, producer in graph.edges.tolist():
            ways = ((producer, consumer, "along"), (consumer, producer, "against"))
            for begin, end, called in ways:
                if way in ("around", called) and begin == node and end not in found:
                    found[end] = found[node] + 1
                    queue.append(end)
    beyond = max(found.values()) + 1
    return np.array([found.get(node, beyond) for node in range(graph.num_nodes)])


@pytest.mark.parametrize("seed", range(4))
def test_distances_are_those_of_an_obvious_walk(seed: int) -> None:
    graph = make_graph(40, seed)
    columns, near = [], np.full(40, np.inf)
    landmark = max(range(40), key=lambda node: graph.resident_bytes[node])
    for _ in range(LANDMARKS):
        for way in ("around", "along", "against"):
            steps = walk(graph, landmark, way)
            columns.append(steps / steps.max())
        near = np.minimum(near, walk(graph, landmark, "around"))
        landmark = int(np.flatnonzero(near == near.max())[0])
    assert np.array_equal(find_distances(graph), np.stack(columns, axis=1))


def test_a_graph_of_one_node_and_one_without_edges_have_distances() -> None:
    for count in (1, 3):
        graph = build_cost_graph("alone", make_columns(count, 0), np.empty((0, 2), np.int64))
        found = find_distances(graph)
        assert found.shape == (count, WAYS * LANDMARKS)
        assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()


@pytest.mark.parametrize("name", [workload.name for workload in SMALL])
def test_a_family_has_a_backward_pass_and_updates(name: str) -> None:
    workload = WORKLOADS[name]
    graph = workload.make()
    assert (graph.edges[:, 1] < graph.edges[:, 0]).all()
    products = (graph.fusion_kinds == PRODUCT).sum()
    trained = (graph.resident_bytes == 3 * graph.output_bytes) & (graph.resident_bytes > 0)
    # Every trained parameter shares its device with its update, which comes last.
    followers = np.bincount(graph.leaders, minlength=graph.num_nodes)
    assert (followers[graph.leaders[trained]] == 2).all()
    assert 250 < graph.num_nodes < 2000 and products > 10
    assert graph.stages.max() + 1 >= 2 and len(np.unique(graph.stages)) == graph.stages.max() + 1
    assert Environment(graph, make_machine(1)).runtime(default_decision(graph)).seconds > 0


def test_the_gradient_of_a_product_is_two_products() -> None:
    program = ProgramBuilder()
    inputs = program.data(4, 3)
    hidden = program.dense(inputs, 5, "tanh")
    program.train([program.add("reduce", (1,), (program.dense(hidden, 2),), 8.0)])
    graph = program.finish("two layers")
    dots = graph.opcodes == OPCODE_IDS["dot"]
    assert dots.sum() == 2 + 1 + 2  # forward; of the first layer only that of the weights
    assert sorted(graph.operations[dots]) == [2.0 * 4 * 5 * 2] * 3 + [2.0 * 4 * 3 * 5] * 2
    assert (graph.opcodes == OPCODE_IDS["subtract"]).sum() == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [workload.name for workload in DOCUMENT])
def test_the_documents_programs_fit_their_machines_by_layers(name: str) -> None:
    workload = WORKLOADS[name]
    graph = workload.make()
    environment = Environment(graph, make_machine(workload.devices))
    assert environment.runtime(default_decision(graph)).peak_bytes[0] < 16e9 * workload.devices


@pytest.mark.slow
def test_eighty_thousand_nodes() -> None:
    assert make_gnmt(8, 90).num_nodes > 80_000


def test_an_npz_file_and_a_module_are_read(tmp_path: Path) -> None:
    path = write_graph(make_layout_graph(name="mine"), tmp_path)
    graph = read_cost_graph(str(path), read_only_module)
    assert graph.name == "mine" and graph.num_nodes > 3
    modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    module = read_cost_graph(str(tmp_path / "program.pb"), read_only_module)
    assert module.operations.sum() > 0
    assert (module.operations[module.fusion_kinds == DATA] == 0).all()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Also an edge between two nodes, and a cost that is no number."""
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    arrays = to_arrays(make_layout_graph())
    half = write_graph(make_layout_graph(name="mine"), tmp_path)
    np.savez(half, **{**arrays, "edge_index": arrays["edge_index"] + 0.5})
    for name, words in (("rnnlm-9", "rnnlm-9.*Expected.*rnnlm-2"),
                        (str(tmp_path / "bad.npz"), "bad.npz"),
                        (str(half), r"mine\.npz.*edge_index.*64.*expected")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            read_cost_graph(name, read_only_module)
    columns = make_columns(3, 0)
    columns.operations[1] = np.nan
    with pytest.raises(InputError, match="1.*operations"):
        build_cost_graph("bad", columns, np.array([[1, 0]]))
