"""Graphs are written back as programs that have the same features."""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lifting import count_kernels
from solution.collecting.cpu import Workers
from solution.collecting.families import draw_settings, write_file
from solution.collecting.lifting.attributes import find_indexing
from solution.collecting.lifting.draft import NotLiftedError
from solution.collecting.lifting.lift import lift
from solution.collecting.tpu.reading import find_trips
from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.propagation.inlining import count_runs
from solution.programs.compiler import Compiler, Flags
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.hlo.records import read_module_file
from solution.programs.portable import make_portable
from solution.programs.program import Program, make_graph
from tests.conftest import FastSlow, assert_refused, assert_said
from tests.made import modules
from tests.made.lifted import find_lost, make_chain
from tests.made.timed import read_text

CASES = Path(__file__).parents[2] / "programs" / "cases"
SAMPLED = [file for file in find_files(SAMPLE) if file.collection.kind == "layout"]


def draw_graphs(count: int) -> list[Graph]:
    chosen = np.random.default_rng(0).choice(len(SAMPLED), count, replace=False)
    return [read_graph(SAMPLED[n].path, SAMPLED[n].collection) for n in chosen]


def test_lifted_programs_have_the_features_of_their_graphs() -> None:
    for graph in draw_graphs(24):  # benchmarks/lifting.py checks all
        assert find_lost(graph, lift(graph)) == Counter(), graph.name


def test_a_lifted_program_is_compiled_and_has_the_shapes_of_the_graph() -> None:
    """XLA checks the shapes, because it infers them again when it reads a module."""
    compiler = Compiler()
    for graph in draw_graphs(4):
        module = make_portable(lift(graph).module)
        compiler.compile(bytes(module.SerializeToString()), Flags())


def test_a_recurrent_step_keeps_its_kernels_and_copies(workers: Workers, tmp_path: Path) -> None:
    """Its loops have several elements of one type, and its calls keep values for gradients."""
    settings = draw_settings(("recurrent",), np.random.default_rng([1, 2]))
    text = write_file(settings | {"train": True, "depth": 2})
    program = read_text(text, tmp_path / "recurrent.py", workers)
    graph = replace(make_graph(program, "layout:xla:random"), summed=None)
    lifted = lift(graph).module
    original, again = (
        count_kernels(workers.compiling, module) for module in (program.module, lifted)
    )
    assert original["copy"] > 0
    assert again == original


SCAN = """
import jax
import jax.numpy as jnp

def program(weights, rows):
    def step(state, row):
        state = jnp.tanh(row @ weights + state)
        return state, state
    return jax.lax.scan(step, 0 * rows[0], rows)[1]

arguments = (jnp.ones((16, 16)), jnp.ones((23, 8, 16)))
"""


def test_a_scan_keeps_its_length(workers: Workers, tmp_path: Path) -> None:
    program = read_text(SCAN, tmp_path / "scan.py", workers)
    graph = replace(make_graph(program, "layout:xla:random"), summed=None)
    dot = graph.node_opcodes == OPCODE_IDS["dot"]
    assert count_runs(graph)[dot].tolist() == [23]
    module = lift(graph).module
    called = {computation.id: computation for computation in module.computations}
    (loop,) = (one for one in instructions(module) if one.opcode == "while")
    trips = {find_trips(loop, called[number]) for number in loop.called_computation_ids}
    assert 23 in trips


def test_constants_are_second_operands_and_divide_sums_by_their_length() -> None:
    constant = {"literal": MESSAGES["Literal"](shape=modules.shape(), f32s=[5.0])}
    add = [
        modules.node(1, "parameter", modules.shape()),
        modules.node(2, "parameter", modules.shape(), parameter_number=1),
        modules.node(3, "add", modules.shape(), (1, 2)),
    ]
    main = [
        modules.node(11, "constant", modules.shape(), **constant),
        modules.node(12, "broadcast", modules.shape(8), (11,)),
        modules.node(13, "parameter", modules.shape(8, 6)),
        modules.node(14, "constant", modules.shape(), **constant),
        modules.node(15, "reduce", modules.shape(8), (13, 14), dimensions=[1],
                     called_computation_ids=[1]),
        modules.node(16, "divide", modules.shape(8), (15, 12)),
        modules.node(17, "multiply", modules.shape(8), (16, 12)),
        modules.node(18, "subtract", modules.shape(8), (12, 17)),
        modules.node(19, "compare", modules.shape(8, kind=1), (18, 12), comparison_direction="GT"),
        modules.node(20, "select", modules.shape(8), (19, 18, 12)),
        modules.node(21, "multiply", modules.shape(8), (20, 20)),
        modules.node(22, "divide", modules.shape(8), (12, 21)),
    ]  # fmt: skip
    module = modules.module(("add", 3, add), ("main", 22, main))
    module.entry_computation_id = 2
    lifted = lift(make_graph(Program("constants", module, None), "layout:xla:random")).module
    for made, read in zip(instructions(module), instructions(lifted), strict=True):
        order = [instruction.id for instruction in instructions(module)]
        assert [one - 1 for one in read.operand_ids] == [order.index(n) for n in made.operand_ids]
    values = [list(i.literal.f32s) for i in instructions(lifted) if i.opcode == "constant"]
    assert values == [[6.0], [0.0]]  # the divisor of the mean of six, the start of the sum


def test_what_is_computed_from_the_other_operand_comes_first() -> None:
    """f(x) + x; in a difference the numbers decide, and of unrelated operands, too."""
    shape = modules.shape(8, 6)
    main = [
        modules.node(1, "parameter", shape),
        modules.node(2, "tanh", shape, (1,)),
        modules.node(3, "negate", shape, (2,)),
        modules.node(4, "add", shape, (3, 1)),
        modules.node(5, "subtract", shape, (1, 4)),
        modules.node(6, "multiply", shape, (2, 3)),
        modules.node(7, "parameter", shape, parameter_number=1),
        modules.node(8, "maximum", shape, (6, 7)),
    ]
    module = modules.module(("main", 8, main))
    lifted = lift(make_graph(Program("sums", module, None), "layout:xla:random")).module
    read = {i.opcode: [one - 1 for one in i.operand_ids] for i in instructions(lifted)}
    assert read["add"] == [2, 0] and read["subtract"] == [0, 3]
    assert read["multiply"] == [2, 1] and read["maximum"] == [5, 6]


def test_twenty_thousand_nodes_are_lifted_in_seconds() -> None:
    graph = make_chain(1000, 19)
    assert graph.num_nodes > 20_000
    begin = time.process_time()
    lift(graph)
    assert time.process_time() - begin < 6  # one second on an idle machine


@pytest.mark.parametrize(
    ("opcode", "column", "words"),
    [("send", None, "send"), (None, vocabulary.ELEMENT_TYPE, "element type")],
)
def test_a_node_that_is_not_lifted_is_named(opcode: str | None, column: slice, words: str) -> None:
    (graph,) = draw_graphs(1)
    features, opcodes = graph.node_features.copy(), graph.node_opcodes.copy()
    node = int(np.flatnonzero(opcodes == OPCODE_IDS["multiply"])[0])
    if opcode is not None:
        opcodes[node] = OPCODE_IDS[opcode]
    else:
        features[node, column] = 0
    with pytest.raises(NotLiftedError, match=f"node {node} .*") as caught:
        lift(replace(graph, node_features=features, node_opcodes=opcodes))
    assert words in str(caught.value)
    assert graph.name in str(caught.value)


def test_embeddings_and_rows_are_gathered_along_the_first_dimension() -> None:
    found = find_indexing((30522, 1024), (4096,), (4096, 1024))
    assert found == ([1], [0], [0], 1, [1, 1024])
    found = find_indexing((19656, 128), (512, 13), (512, 13, 128))
    assert found == ([2], [0], [0], 2, [1, 128])
    assert find_indexing((4, 4), (3, 2), (3,)) == ([], [0, 1], [0, 1], 1, [1, 1])
    assert find_indexing((4, 4), (3, 3), (5, 5)) is None


def test_a_program_is_written_as_text_and_as_protobuf(fastslow: FastSlow, tmp_path: Path) -> None:
    file = SAMPLED[0]
    graph = read_graph(file.path, file.collection)
    for name in ("program.hlo", "program.pb"):
        said = assert_said(fastslow("module", file.path, "--to", name))
        assert f"{graph.num_nodes:,} nodes" in said
    said = assert_refused(fastslow("module", file.path, "--to", "program.exe"))
    assert ".hlo" in said and ".pb" in said
    (record,) = read_module_file(tmp_path / "program.pb")
    assert np.array_equal(record.graph.node_features, graph.node_features)
    assert np.array_equal(record.graph.configurable, graph.configurable)
    parsed = Compiler().parse_hlo((tmp_path / "program.hlo").read_text(encoding="utf-8"))
    opcodes = Counter(i.opcode for i in instructions(MESSAGES["Module"].FromString(parsed)))
    assert opcodes == Counter(i.opcode for i in instructions(record.module))


def test_more_than_six_dimensions_come_back() -> None:
    text = (CASES / "rank_seven.hlo").read_text(encoding="utf-8")
    module = MESSAGES["Module"].FromString(Compiler().parse_hlo(text))
    graph = make_graph(Program("rank_seven", module, None), "layout:xla:random")
    assert graph.node_features[:, vocabulary.SHAPE_SUM].max() > 6
    lifted = lift(graph)
    assert find_lost(graph, lifted) == Counter()
    shapes = [tuple(i.shape.dimensions) for i in instructions(lifted.module)]
    assert shapes == [tuple(i.shape.dimensions) for i in instructions(module)]


def test_contradicting_graphs_are_refused_with_the_node() -> None:
    """Sizes that do not fit, missing and additional operands, and cycles."""
    (graph,) = draw_graphs(1)
    node = int(np.flatnonzero(graph.node_opcodes == OPCODE_IDS["multiply"])[0])
    features = graph.node_features.copy()
    features[node, 21] += 1
    changed = {
        "sizes": {"node_features": features},
        "no edge": {"edges": graph.edges[graph.edges[:, 0] != node]},
        f"node {node + 1}": {"edges": np.vstack([graph.edges, [[node, node + 1]]])},
    }
    for words, fields in changed.items():
        with pytest.raises(NotLiftedError, match=f"node {node} .multiply.*{words}"):
            lift(replace(graph, **fields))
