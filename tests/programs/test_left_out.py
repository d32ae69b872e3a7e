"""Constants that a text was printed without: found, counted, drawn the same each time, and said."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solution.collecting.child import Compile, Look, Open
from solution.collecting.cpu import Builder, Workers
from solution.collecting.program_space import (
    LAYOUTS,
    OPTIONS,
    TILES,
    make_collected_space,
    make_program_space,
)
from solution.collecting.records import Destination, write_graph
from solution.collecting.space import draw_new, name_config
from solution.data.npz import read_graph as read_npz
from solution.domain import vocabulary
from solution.domain.collection import collection as find_collection
from solution.features.candidates import make_candidates
from solution.features.preparation import repair_padding
from solution.programs.child import Child, Limits, Refusal, find_flag_defect
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.left_out import FIELDS
from solution.programs.obstacles import describe_module
from solution.programs.program import Program, make_graph, read_programs
from solution.serving.reading import read_question, read_questions
from solution.system.errors import InputError
from tests.conftest import FastSlow
from tests.made import modules

# In the text of XLA, by the numbers of its PrimitiveType.
NAMES = {1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
         10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2",
         20: "f8e4m3fn", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 28: "f8e4m3",
         21: "s4", 22: "u4", 26: "s2", 27: "u2", 29: "f8e3m4", 32: "f4e2m1fn",
         33: "f8e8m0fnu"}  # fmt: skip
ELIDED = ("constant-left-out/elided.hlo", "constant-left-out-of-stablehlo/elided.mlir")
PLAIN = "HloModule m\nENTRY e {{ ROOT c = {kind}[3,5] constant({{...}}) }}\n"


def read(path: Path, workers: Workers) -> Program:
    (program,) = read_programs(path, workers.compiling)
    return program


@pytest.mark.parametrize(("name", "numbers"), [(ELIDED[0], "3,360"), (ELIDED[1], "65,536")])
def test_they_are_counted_and_said(name: str, numbers: str, cases: Path, workers: Workers) -> None:
    program = read(cases / name, workers)
    opcodes = [i.opcode for c in program.module.computations for i in c.instructions]
    assert sorted(opcodes) == ["constant", "dot", "parameter"]
    assert "1 constant " in program.notes[0] and numbers in program.notes[0]
    (question,) = read_questions(cases / name)
    assert question.notes == program.notes and question.graph.num_nodes == 3


def test_rank_says_it_in_a_line(fastslow: FastSlow, cases: Path) -> None:
    done = fastslow("rank", cases / ELIDED[0])
    assert any("1 constant " in line and "3,360" in line for line in done.stdout.splitlines())


def test_a_program_is_the_same_whatever_was_read_before(cases: Path, workers: Workers) -> None:
    first = read(cases / ELIDED[0], workers).digest
    workers.compiling.end()
    assert read(cases / ELIDED[1], workers).digest != first
    assert read(cases / ELIDED[0], workers).digest == first


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_numbers_of_each_type_are_drawn(kind: int, workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "mine.hlo"
    path.write_text(PLAIN.format(kind=NAMES[kind]))
    program = read(path, workers)
    assert len(workers.compiling.ask(Open(program.plain, [])).executable) > 0
    assert workers.compiling.ask(Look(0)).can_differ
    assert read(path, workers).digest == program.digest


def test_more_numbers_than_a_module_may_hold(workers: Workers, tmp_path: Path) -> None:
    """Each alone could be drawn; nothing is allocated before all are counted."""
    lines = "".join(f"  left{n} = f32[99000000]{{0}} constant({{...}})\n" for n in range(99))
    path = tmp_path / "hostile.hlo"
    path.write_text(f"HloModule m\nENTRY e {{\n{lines}  ROOT r = f32[1]{{0}} constant({{1}})\n}}\n")
    with pytest.raises(InputError, match=rf"hostile\.hlo.*{99 * 99_000_000:,}"):
        read(path, workers)
    assert len(list(read_programs(path, workers.compiling, runs=False))) == 1


def test_results_differ_where_numbers_do(cases: Path, workers: Workers) -> None:
    """With the counter that the compiler fills in all are 0, and every tile agrees."""
    program = read(cases / ELIDED[0], workers)
    builder, space = (Builder(workers.compiling, program), make_collected_space(program, TILES))
    builder.open()
    assert space.members is not None
    assert space.product is not None
    tiles = space.product.tiles
    wide = space.members[(tiles[:, 2] == 4) & (tiles[:, 0] > 1)][0]
    status, note, _ = builder.build(Compile(*space.prepare(wide)))
    assert status == "wrong", note


def test_a_tuple_and_others_of_one_module(workers: Workers, tmp_path: Path) -> None:
    text = (
        'HloModule m\nENTRY e {\n  c = f32[3,5]{1,0} constant({...}), metadata={op_name="c"}\n'
        "  d = f32[3,5]{1,0} constant({...})\n  ROOT s = f32[3,5]{1,0} add(c, d)\n}\n"
    )
    (tmp_path / "two.hlo").write_text(text)
    program = read(tmp_path / "two.hlo", workers)
    assert "2 constants " in program.notes[0] and "30 numbers" in program.notes[0]
    drawn = [i.literal.SerializeToString() for c in program.module.computations
             for i in c.instructions if i.opcode == "constant"]  # fmt: skip
    assert len(set(drawn)) == 2


@pytest.mark.parametrize(("name", "facts"), [
    ("gathered-from-eight-devices/gathered.hlo",
     ("8 partitions", "num_partitions=8", "one device")),
    ("shard-map-as-text/sharded.hlo", ("shard_map", "8 devices")),
    ("a-print-in-a-dump/printed.hlo", ("calls back into Python", "jax.debug.print")),
])  # fmt: skip
def test_what_cannot_be_run_here_is_ranked_and_refused_by_name(
    name: str, facts: tuple[str, ...], cases: Path, workers: Workers
) -> None:
    with pytest.raises(InputError) as raised:
        list(read_programs(cases / name, workers.compiling))
    for fact in (str(cases / name), *facts):
        assert fact in str(raised.value)
    (question,) = read_questions(cases / name)
    assert question.graph.num_configs > 8


@pytest.mark.parametrize("lines", [
    "i = (f32[4,4], token[]) infeed(t)\n  x = f32[4,4] get-tuple-element(i), index=0",
    "x = f32[4,4] parameter(0)\n  s = (f32[4,4], u32[], token[]) send(x, t), channel_id=1\n"
    "  e = token[] send-done(s), channel_id=1",
])  # fmt: skip
def test_what_waits_for_others_is_refused(lines: str, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "waits.hlo").write_text(
        f"HloModule m\nENTRY e {{\n  t = token[] after-all()\n  {lines}\n  ROOT d = f32[4,4] "
        "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    with pytest.raises(InputError, match=r"waits\.hlo: exchanges data .*(infeed|send)"):
        list(read_programs(tmp_path / "waits.hlo", workers.compiling))
    assert len(list(read_questions(tmp_path / "waits.hlo"))) == 1


def test_a_callback_in_mlir_is_refused_too(workers: Workers, tmp_path: Path) -> None:
    text = """module {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {api_version = 4 : i32,
      has_side_effect = true, backend_config = {index = 0 : ui64}} : (tensor<4xf32>) -> tuple<>
    return %x : tensor<4xf32>
  }
}
"""
    (tmp_path / "printed.mlir").write_text(text)
    with pytest.raises(InputError, match="calls back"):
        list(read_programs(tmp_path / "printed.mlir", workers.compiling))


def test_a_partition_that_needs_no_other_is_run_and_said(cases: Path, workers: Workers) -> None:
    program = read(cases / "partition-number" / "numbered.hlo", workers)
    assert "4 partitions" in program.notes[0] and "the first" in program.notes[0]
    # The first one's number is 0, and so are all results, which compare nothing.
    with pytest.raises(InputError, match="results.*0"):
        Builder(workers.compiling, program).open()


def test_a_program_not_divided_yet_is_run_as_a_whole(workers: Workers, tmp_path: Path) -> None:
    text = (
        "HloModule m, num_partitions=4\nENTRY e {\n  x = f32[8,16]{1,0} parameter(0)\n"
        "  y = f32[8,16]{1,0} custom-call(x), sharding={replicated}, "
        'custom_call_target="Sharding"\n'
        "  ROOT z = f32[8,16]{1,0} tanh(y)\n}\n"
    )
    (tmp_path / "whole.hlo").write_text(text)
    program = read(tmp_path / "whole.hlo", workers)
    assert "4 partitions" in program.notes[0] and "whole" in program.notes[0]
    Builder(workers.compiling, program).open()


def test_a_module_that_was_divided_and_scheduled_is_not_called_undivided() -> None:
    """Its parameters keep the shardings that they had before."""
    half = MESSAGES["Sharding"](tile_assignment_dimensions=[4, 1]).SerializeToString()
    node = modules.node(1, "parameter", modules.shape(8, 16))
    node.sharding = half
    module = modules.module(("main", 1, [node]))
    assert "not divided yet" in describe_module(module)[0]
    module.schedule.sequences[0].instruction_ids.append(1)
    assert not any("not divided yet" in said for said in describe_module(module))


DIVIDED = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("m",))

def program(x, weights):
    return jnp.tanh(x @ weights)

arguments = (
    jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P())),
    jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=NamedSharding(mesh, P(None, "m"))),
)
"""
EXPORT = """
from pathlib import Path

import jax.export
from divided import arguments, program

lowered = jax.jit(program).lower(*arguments)
Path("text.mlir").write_text(lowered.as_text())
module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
Path("module.pb").write_bytes(module)
Path("exported.mlir").write_bytes(jax.export.export(jax.jit(program))(*arguments).serialize())
"""


def test_a_program_that_jax_divides_is_called_whole_in_all_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "divided.py").write_text(DIVIDED)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    subprocess.run([sys.executable, "-c", EXPORT], cwd=tmp_path, check=True)
    with Child(Limits()) as child:
        for name in ("divided.py", "text.mlir", "exported.mlir", "module.pb"):
            (program,) = read_programs(tmp_path / name, child)
            (note,) = program.notes
            assert "4 partitions" in note and "whole" in note, name


def test_arguments_without_numbers_are_drawn(cases: Path, workers: Workers, tmp_path: Path) -> None:
    program = read(cases / "shapes-for-arguments" / "shapes.py", workers)
    assert [array.shape for array in program.arguments] == [(64, 128), (128, 32)]
    assert all(np.ptp(array) > 0 for array in program.arguments)
    text = (
        '"""A tree of arrays and shapes."""\nimport jax, jax.numpy as jnp\n'
        "arguments = ({'w': jax.ShapeDtypeStruct((3, 4), jnp.bfloat16), 'x': jnp.ones((2, 3))},\n"
        "             [jax.ShapeDtypeStruct((), jnp.int32)])\n"
        "def program(tree, scalars):\n    return tree['x'] @ tree['w'] + scalars[0]\n"
    )
    (tmp_path / "tree.py").write_text(text)
    program = read(tmp_path / "tree.py", workers)
    weights, x, scalar = program.arguments
    assert (str(weights.dtype), weights.shape, scalar.shape) == ("bfloat16", (3, 4), ())
    np.testing.assert_array_equal(x, np.ones((2, 3), np.float32))
    assert read(tmp_path / "tree.py", workers).digest == program.digest


@pytest.mark.parametrize(("flags", "fact"), [
    ("--xla_tpu_enable_latency_hiding_scheduler=true", "--xla_tpu_enable_latency_hiding"),
    ("--xla_force_host_platform_device_count=many", "many"),
])  # fmt: skip
def test_a_flag_that_xla_does_not_take_is_named(flags: str, fact: str, cases: Path) -> None:
    command = [sys.executable, "-m", "solution", "rank", cases / "flags-of-a-tpu" / "plain.hlo"]
    environment = os.environ | {"XLA_FLAGS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "XLA_FLAGS" in done.stderr and fact in done.stderr
    assert "plain.hlo" not in done.stderr and "Traceback" not in done.stderr
    assert not find_flag_defect("Error: hello\nXLA_FLAGS are fine")  # what a program prints


LONGER = ("rank_seven.hlo", "rank_seven.py", "tensor-network/network.py",
          "tiled-four-dimensions/tiled.py")  # fmt: skip
PRODUCT = """HloModule product
ENTRY main {
  t = f32[1,1,1,1,1,4,8] parameter(0)
  x = f32[4,8] reshape(t)
  w = f32[8,16] parameter(1)
  ROOT d = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

BOUNDED = """HloModule bounded
ENTRY main {
  x = f32[<=8,4] parameter(0)
  w = f32[4,16] parameter(1)
  ROOT d = f32[<=8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_the_first_six_numbers_of_each_list_are_kept(cases: Path) -> None:
    question = read_question(cases / "rank_seven.hlo")
    graph = question.graph
    assert graph.num_nodes == 5
    assert [vocabulary.OPCODES[k] for k in graph.node_opcodes[graph.configurable]] == [
        "reshape", "dot",
    ]  # fmt: skip
    x, transposed, *_ = graph.node_features
    assert x[vocabulary.SHAPE_DIMENSIONS].tolist() == [2] * 6
    assert (x[vocabulary.SHAPE_SUM], x[vocabulary.SHAPE_PRODUCT]) == (20, 512)
    assert x[vocabulary.NODE_LAYOUT].tolist() == [6, 5, 4, 3, 2, 1]
    assert transposed[vocabulary.DIMENSIONS].tolist() == [1, 0, 2, 3, 4, 5]
    # The reshape reads the tensor of seven dimensions, whose order six slots do not hold.
    drawn = graph.layouts.expand().reshape(-1, 2, 3, 6)
    is_set = (drawn != vocabulary.LAYOUT_UNSET).any(axis=(0, 3))
    assert is_set.tolist() == [[True, False, False], [True, True, True]]


def test_models_see_orders_of_six_dimensions() -> None:
    """The seventh is left out, and what is missing then follows."""
    x = modules.node(1, "parameter", modules.shape(2, 2, 2, 2, 2, 2, 8))
    order = [6, 0, 1, 2, 3, 4, 5]
    moved = modules.node(2, "transpose", modules.shape(8, 2, 2, 2, 2, 2, 2), (1,), dimensions=order)
    summed = modules.node(3, "reduce", modules.shape(2), (2,), dimensions=[0, 1, 2, 3, 4, 6])
    question = Program("made", modules.module(("main", 3, [x, moved, summed])), None)
    assert question.nodes.features[1, vocabulary.DIMENSIONS].tolist() == order[:6]
    features = repair_padding(make_graph(question, "layout:xla:random")).node_features
    assert features[0, vocabulary.NODE_LAYOUT].tolist() == [5, 4, 3, 2, 1, 0]
    assert features[1, vocabulary.DIMENSIONS].tolist() == [0, 1, 2, 3, 4, 5]
    assert features[2, vocabulary.DIMENSIONS].tolist()[:5] == [0, 1, 2, 3, 4]
    for columns in vocabulary.DIMENSION_NUMBERS:
        assert features[:, columns].max() < vocabulary.MAX_RANK


@pytest.mark.parametrize("name", LONGER)
def test_such_programs_are_ranked(name: str, cases: Path, workers: Workers, tmp_path: Path) -> None:
    program = read(cases / name, workers)
    ranks = [len(i.shape.dimensions) for i in instructions(program.module)]
    assert max(ranks) > vocabulary.MAX_RANK
    for collection in ("layout:xla:random", "tile:xla"):
        assert make_candidates(make_graph(program, collection)).num_configs > 8
    assert make_program_space(program).layout_sites
    for kind in (OPTIONS, LAYOUTS):
        _, npz = write_measured(program, kind, "layout:xla:random", tmp_path / kind)
        graph = read_npz(npz, find_collection("layout:xla:random"))
        assert graph.num_configs == 4
        assert make_candidates(graph).num_configs > 8


def test_tiles_beside_a_longer_tensor_are_written(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "product.hlo").write_text(PRODUCT)
    program = read(tmp_path / "product.hlo", workers)
    _, npz = write_measured(program, TILES, "tile:xla", tmp_path)
    assert read_npz(npz, find_collection("tile:xla")).num_configs == 4


def write_measured(program: Program, kind: str, collection: str, out: Path) -> tuple[Path, Path]:
    space = make_collected_space(program, kind)
    drawn = draw_new(space, np.random.default_rng(0), 3, {name_config(space.default)})
    configs = [space.default, *drawn]
    measured = [(config, 1000 + number) for number, config in enumerate(configs)]
    return write_graph(program, space, measured, Destination(out, collection, "train"))


@pytest.mark.parametrize("what", ["parameter 0", "grown"])
def test_a_size_that_is_not_known_is_said(what: str, tmp_path: Path, workers: Workers) -> None:
    x = modules.node(1, "parameter", modules.shape(8 if what == "grown" else -(2**63), 4))
    y = modules.node(2, "custom-call", modules.shape(-(2**63), 4), (1,), name="grown")
    path = modules.write(modules.module(("main", 2, [x, y])), tmp_path / "mine.pb")
    for read_it in (lambda: read(path, workers), lambda: read_question(path)):
        with pytest.raises(InputError, match="unknown size") as raised:
            read_it()
        assert str(path) in str(raised.value) and what in str(raised.value)


def test_a_bound_is_the_size_of_a_dimension(tmp_path: Path, workers: Workers) -> None:
    (tmp_path / "bounded.hlo").write_text(BOUNDED)
    features = read(tmp_path / "bounded.hlo", workers).nodes.features
    assert features[0, vocabulary.SHAPE_DIMENSIONS].tolist() == [8, 4, 0, 0, 0, 0]


ONE_BIT = (
    "HloModule m\nENTRY e {{ p = {kind}[8] parameter(0)\n ROOT c = f32[8] convert(p) }}\n",
    "HloModule m\nENTRY e {{ ROOT c = {kind}[8] constant({{{one}, 0, 0, 0, 0, 0, 0, 0}}) }}\n",
    PLAIN,
)


@pytest.mark.parametrize("kind", ["s1", "u1"])
def test_types_of_one_bit_are_refused(kind: str, workers: Workers, tmp_path: Path) -> None:
    """XLA has none on a CPU; once it takes them, draw them as those of two bits are drawn."""
    import ml_dtypes

    path = tmp_path / "narrow.hlo"
    path.write_text(ONE_BIT[0].format(kind=kind))
    program = read(path, workers)
    with pytest.raises(InputError, match=f"narrow: parameter 0 is of type {kind}"):
        program.arguments  # noqa: B018
    bits = np.ones(8, np.int8).astype(np.dtype(getattr(ml_dtypes, f"{'u' * (kind == 'u1')}int1")))
    assert isinstance(workers.compiling.ask(Open(program.plain, [bits])), Refusal)
    path.write_text(ONE_BIT[1].format(kind=kind, one={"s1": -1, "u1": 1}[kind]))
    assert isinstance(workers.compiling.ask(Open(read(path, workers).plain, [])), Refusal)
    path.write_text(ONE_BIT[2].format(kind=kind))
    with pytest.raises(InputError, match=r"narrow.hlo: a constant of 15 numbers"):
        read(path, workers)
