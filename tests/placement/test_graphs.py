"""Graphs with costs: of the six families, of files, of modules."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.work import num_operations
from solution.placement.graphs.builder import ProgramBuilder
from solution.placement.graphs.cost_graph import DATA, PRODUCT, Columns, build_cost_graph
from solution.placement.graphs.reading import _tie, cost_graph_of, read_cost_graph
from solution.placement.graphs.recurrent import make_gnmt
from solution.placement.graphs.workloads import DOCUMENT, SMALL, WORKLOADS
from solution.placement.machine import make_machine
from solution.placement.simulation.decision import default_decision
from solution.placement.simulation.environment import Environment
from solution.programs.hlo.records import read_module_file
from solution.system.errors import InputError
from tests.made import modules
from tests.made.graphs import make_layout_graph, write_graph
from tests.placement.made import make_columns


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


def test_what_is_cut_up_has_one_gradient() -> None:
    program = ProgramBuilder()
    whole = program.parameter(8)
    parts = [program.add("slice", (4,), (whole,)) for _ in range(2)]
    program.train([program.apply("multiply", *parts)])
    graph = program.finish("halves")
    joined = np.flatnonzero(graph.opcodes == OPCODE_IDS["concatenate"])
    assert len(joined) == 1 and graph.output_bytes[joined[0]] == 32


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
    graph = read_cost_graph(str(path))
    assert graph.name == "mine" and graph.num_nodes > 3
    modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    module = read_cost_graph(str(tmp_path / "program.pb"))
    assert module.operations.sum() > 0
    assert (module.operations[module.fusion_kinds == DATA] == 0).all()


def test_a_multiply_add_of_a_product_is_two_operations(tmp_path: Path) -> None:
    modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    read = read_module_file(tmp_path / "program.pb")[0].graph
    graph, counted = cost_graph_of(read), num_operations(read)
    products, runs = graph.fusion_kinds == PRODUCT, graph.fusion_kinds != DATA
    assert products.any() and (runs & ~products).any()
    assert np.array_equal(graph.operations[products], 2 * counted[graph.numbers][products])
    others = runs & ~products
    assert np.array_equal(graph.operations[others], counted[graph.numbers][others])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rnnlm-9: expected an npz file, a module .* rnnlm-2"):
        read_cost_graph("rnnlm-9")
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="bad.npz"):
        read_cost_graph(str(tmp_path / "bad.npz"))


def test_an_edge_between_two_nodes_is_refused(tmp_path: Path) -> None:
    path = write_graph(make_layout_graph(name="mine"), tmp_path)
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **{**arrays, "edge_index": arrays["edge_index"] + 0.5})
    with pytest.raises(InputError, match="mine.npz: edge_index holds float64, expected whole"):
        read_cost_graph(str(path))


def test_a_cost_that_is_no_number_is_named() -> None:
    columns: Columns = make_columns(3, 0)
    columns.operations[1] = np.nan
    with pytest.raises(InputError, match="node 1 has nan operations"):
        build_cost_graph("bad", columns, np.array([[1, 0]]))


def tie_slowly(kinds: np.ndarray, edges: list[tuple[int, int]]) -> list[int]:
    """Follow each node to where it stays, a step at a time."""

    def follow(node: int) -> int:
        if kinds[node] != DATA:
            return node
        reads = [producer for consumer, producer in edges if consumer == node]
        readers = [consumer for consumer, producer in edges if producer == node]
        return min(reads or readers or [node])

    ends = []
    for node in range(len(kinds)):
        seen = [node]
        while (following := follow(seen[-1])) not in seen[-2:]:
            seen.append(following)
        ends.append(min(seen[-1], following))
    return ends


@given(st.data())
def test_what_runs_no_kernel_stays_with_a_neighbour(data: st.DataObject) -> None:
    """Also a constant that a tuple alone reads: each names the other."""
    count = data.draw(st.integers(1, 8))
    kinds = np.array(
        data.draw(st.lists(st.sampled_from([DATA, PRODUCT]), min_size=count, max_size=count))
    )
    pairs = [(reader, read) for reader in range(count) for read in range(reader)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    table = np.array(edges, np.int64).reshape(-1, 2)
    assert _tie(kinds, table).tolist() == tie_slowly(kinds, edges)
