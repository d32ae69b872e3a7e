"""Which form a file has is told by its bytes, whatever it is called and its strings say."""

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from solution.collecting.cpu import Workers
from solution.commands.options import read_only_module
from solution.programs.forms import HLO, STABLEHLO, find_form, list_sources
from solution.programs.program import Program, Wanted, read_programs
from solution.serving.reading import read_questions
from solution.system.errors import InputError
from tests.conftest import FastSlow
from tests.made import modules
from tests.made.graphs import make_layout_graph, write_graph

DOT = """HloModule {name}
ENTRY main {{
  x = f32[8,16]{{1,0}} parameter(0)
  w = f32[16,4]{{1,0}} parameter(1)
  ROOT d = f32[8,4]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
STARTED = "2026-08-21 15:35:57 worker 3 started\nCompiling module jit_f = 1\n"
GLOG = "I0821 15:35:57.120000  4242 compiler.cc:12] "


def read(path: Path, workers: Workers, **wanted: str) -> list[Program]:
    return list(read_programs(path, workers.compiling, Wanted(**wanted)))


def list_opcodes(program: Program) -> list[str]:
    return [i.opcode for c in program.module.computations for i in c.instructions]


@pytest.mark.parametrize(("name", "more"), [
    ("hlo-that-names-stablehlo/quantised.hlo", {"custom-call"}),
    ("a-proto-called-hlo/model.hlo", {"tanh"}), ("utf-16-text/wide.hlo", {"tanh"}),
    ("stablehlo-as-bytecode/exported.mlir", {"tanh"}), ("exported.mlirbc", {"tanh"}),
    ("exported.jax_export", {"tanh"}), ("stablehlo-without-main/forward.mlir", set()),
    ("no_main.mlir", set()),
])  # fmt: skip
def test_programs_of_all_forms(name: str, more: set[str], cases: Path, workers: Workers) -> None:
    (program,) = read(cases / name, workers)
    assert set(list_opcodes(program)) == {"parameter", "dot"} | more and not program.notes
    if name in ("exported.mlirbc", "exported.jax_export"):
        shapes = [list(i.shape.dimensions) for i in program.module.computations[-1].instructions]
        assert sorted(shapes) == [[16, 8], [16, 8], [16, 32], [32, 8]]


def test_vhlo_as_text_is_read(cases: Path, workers: Workers, tmp_path: Path) -> None:
    code = (
        "import sys; from jaxlib.mlir import ir\n"
        "from jax.interpreters.mlir import make_ir_context\n"
        "with make_ir_context(): print(ir.Module.parse(open(sys.argv[1], 'rb').read()))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, cases / "exported.mlirbc"], capture_output=True, check=True
    ).stdout
    assert b"vhlo.func_v1" in printed
    (tmp_path / "portable.mlir").write_bytes(printed)
    (program,) = read(tmp_path / "portable.mlir", workers)
    assert "tanh" in list_opcodes(program)
    renamed = printed.replace(b"@main", b"@forward")
    (tmp_path / "forward.mlir").write_bytes(renamed)
    (again,) = read(tmp_path / "forward.mlir", workers)
    assert list_opcodes(again) == list_opcodes(program)


def test_a_text_may_have_any_name_and_encoding(workers: Workers, tmp_path: Path) -> None:
    text = DOT.format(name="mine")
    for suffix in (".hlo", ".txt", ".mlir", ".pb", ""):
        path = tmp_path / f"mine{suffix}"
        path.write_text(text)
        assert read(path, workers)[0].module.name == "mine"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        data = text.replace("\n", "\r\n").encode(encoding)
        assert find_form(data) == HLO
        assert [source.content for source in list_sources(data, HLO)] == [text]


def test_texts_in_other_bytes_are_read_or_one_message(workers: Workers, tmp_path: Path) -> None:
    text = DOT.format(name="mine")
    (tmp_path / "padded.hlo").write_bytes(text.encode() + bytes(7))
    assert read(tmp_path / "padded.hlo", workers)[0].module.name == "mine"
    latin = text.replace("\n", ', metadata={op_name="\xe9"}\n', 3).encode("latin-1")
    for name, data, fact in (
        ("latin.hlo", latin, "0xe9"),
        ("split.hlo", text.replace("dot", "d\0t").encode(), "control characters"),
        ("packed.hlo", gzip.compress(text.encode()), "gzip"),
        ("packed.pb.gz", gzip.compress(b"\n\4mine"), "gzip"),
        ("notes.md", b"mine", "HloModule"), ("a.png", b"\x89PNG\r\n\x1a\n\0\0", "HloModule"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        for read_it in (lambda path: read(path, workers), lambda path: list(read_questions(path))):
            with pytest.raises(InputError) as raised:
                read_it(tmp_path / name)
            assert str(tmp_path / name) in str(raised.value) and fact in str(raised.value)


def test_a_graphs_npz_file_has_no_program(workers: Workers, tmp_path: Path) -> None:
    path = write_graph(make_layout_graph(0), tmp_path)
    with pytest.raises(InputError, match=f"{path}.*no program.*fastslow module {path} --to"):
        read(path, workers)


def test_a_declaration_is_no_program(workers: Workers, tmp_path: Path) -> None:
    """XLA dies of a function without a body, even of one that nothing calls."""
    declared = "  func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32>\n"
    main = """  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = {} : {}
    return %0 : tensor<4xf32>
  }}
"""
    unused = main.format("stablehlo.tanh %x", "tensor<4xf32>")
    calling = main.format("call @f(%x)", "(tensor<4xf32>) -> tensor<4xf32>")
    path = tmp_path / "declared.mlir"
    for functions in (declared, declared + calling):
        path.write_text(f"module {{\n{functions}}}\n")
        with pytest.raises(InputError, match=r"declared\.mlir.*function"):
            read(path, workers)
    path.write_text(f"module {{\n{declared}{unused}}}\n")
    assert list_opcodes(read(path, workers)[0]) == ["parameter", "tanh"]


def test_lines_of_a_log_around_a_module_are_left_out(workers: Workers, tmp_path: Path) -> None:
    text = DOT.format(name="mine")
    prefixed = "".join(f"{GLOG}{line}\n" for line in text.splitlines())
    for number, logged in enumerate((STARTED + text + "\nCompiled in 3 s\n", prefixed)):
        path = tmp_path / f"logged{number}.txt"
        path.write_text(logged)
        (program,) = read(path, workers)
        assert list_opcodes(program) == ["parameter", "parameter", "dot"]


def test_the_bytes_of_other_programs_inside_a_dump_are_no_form() -> None:
    """A GPU's kernels lie as MLIR bytecode in the strings of a module."""
    name = "a" * 3 + b"\x10\0\0\0ML\xefR".decode("latin-1")
    data = modules.make_module(name.encode("latin-1").decode("latin-1")).SerializeToString()
    raw = data.replace("ML\xefR".encode(), b"ML\xefR")
    assert b"ML\xefR" in raw
    assert find_form(raw) == "protobuf"


def test_several_modules_of_a_text_are_several_programs(cases: Path, workers: Workers) -> None:
    path = cases / "two-modules-in-one-text" / "two.hlo"
    programs = read(path, workers)
    assert [program.module.name for program in programs] == ["first", "second"]
    assert [program.name for program in programs] == ["two_0", "two_1"]
    for wanted in ("second", "2"):
        assert [p.module.name for p in read(path, workers, module=wanted)] == ["second"]
    for wanted in ("third", "3", "0"):
        with pytest.raises(InputError, match=rf"no module {wanted}.*1 \(first\), 2 \(second\)"):
            read(path, workers, module=wanted)
    assert len(list(read_questions(path))) == 2
    assert len(list(read_questions(path, wanted=Wanted("first")))) == 1


def test_modules_of_mlir_are_divided(cases: Path, workers: Workers, tmp_path: Path) -> None:
    text = (cases / "no_main.mlir").read_text()
    (tmp_path / "two.mlir").write_text(f"// RUN: nothing\n{text}// -----\n{text}\n// -----\n")
    assert len(read(tmp_path / "two.mlir", workers)) == 2


def test_of_several_functions_one_is_named(cases: Path, workers: Workers, tmp_path: Path) -> None:
    path = cases / "two_functions.mlir"
    with pytest.raises(InputError, match=f"{path}.*encode.*decode.*--function"):
        read(path, workers)
    for name, shape in (("encode", [16, 8]), ("decode", [16, 32])):
        (program,) = read(path, workers, function=name)
        assert list(program.module.computations[-1].instructions[-1].shape.dimensions) == shape
    with pytest.raises(InputError, match="encode, decode"):
        read(path, workers, function="train")
    with pytest.raises(InputError, match="StableHLO"):
        read(cases / "rank_seven.hlo", workers, function="train")


def test_a_function_beside_main_and_what_it_calls(workers: Workers, tmp_path: Path) -> None:
    text = """module {
  func.func private @double(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
  func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @double(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = call @main(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.tanh %1 : tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}
"""
    (tmp_path / "beside.mlir").write_text(text)
    (program,) = read(tmp_path / "beside.mlir", workers)
    assert "tanh" not in list_opcodes(program)
    (program,) = read(tmp_path / "beside.mlir", workers, function="other")
    assert {"add", "tanh"} <= set(list_opcodes(program))


def test_a_folder_of_text_dumps_is_ranked_as_one_of_protos(cases: Path, tmp_path: Path) -> None:
    """Of the texts that XLA writes by default only those before optimisation are programs."""
    code = (cases / "folder-of-text-dumps" / "make.py").read_text()
    as_protos = code.replace("=dumped", "=protos --xla_dump_hlo_as_proto")
    for made in (code, as_protos):
        subprocess.run(
            [sys.executable, "-c", made], env=os.environ | {"JAX_PLATFORMS": "cpu"}, cwd=tmp_path,
            check=True, capture_output=True,
        )  # fmt: skip
    assert as_protos != code and not list((tmp_path / "dumped").glob("*.pb"))
    texts = {q.graph.name: q.graph for q in read_questions(tmp_path / "dumped")}
    protos = {q.graph.name: q.graph for q in read_questions(tmp_path / "protos")}
    assert any("lambda" in name for name in texts)
    assert all("before_optimizations" in name for name in texts)
    for name, graph in texts.items():
        np.testing.assert_array_equal(graph.edges, protos[f"{name}.hlo"].edges)


def test_a_dump_after_optimisation_says_what_to_dump(workers: Workers, tmp_path: Path) -> None:
    text = DOT.format(name="mine, is_scheduled=true")
    gpu = text.replace(
        "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        'custom-call(x, w), custom_call_target="__cublas$gemm"',
    )
    (tmp_path / "scheduled.hlo").write_text(text)
    (program,) = read(tmp_path / "scheduled.hlo", workers)
    assert "before_optimizations" in " ".join(program.notes)
    (tmp_path / "gpu.hlo").write_text(gpu)
    with pytest.raises(InputError, match=r"__cublas\$gemm.*before_optimizations"):
        read(tmp_path / "gpu.hlo", workers)


FORMS = (
    "hlo-that-names-stablehlo/quantised.hlo", "a-proto-called-hlo/model.hlo",
    "utf-16-text/wide.hlo", "stablehlo-as-bytecode/exported.mlir", "exported.jax_export",
    "no_main.mlir", "constant-left-out/elided.hlo", "shapes-for-arguments/shapes.py",
)  # fmt: skip


def test_what_is_ranked_is_shown_as_well(fastslow: FastSlow, cases: Path, tmp_path: Path) -> None:
    """A folder of programs in all forms, then one of its files, and one program of two."""
    folder = tmp_path / "all"
    folder.mkdir()
    for number, name in enumerate(FORMS):
        kept = Path(name).suffix if name.endswith((".hlo", ".mlir")) else ".hlo"
        if not name.endswith(".py"):  # of a folder, no Python is run
            shutil.copy(cases / name, folder / f"p{number}{kept}")
    ranked = [question.graph for question in read_questions(folder)]
    done = fastslow("module", folder, "--to", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert "p6: 1 constant" in done.stdout and "3,360" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    for graph in ranked:
        assert [int(line[1]) for line in lines if line[:1] == [graph.name]] == [graph.num_nodes]
    assert len(list((tmp_path / "data").rglob("*.npz"))) == len(FORMS) - 1
    two = cases / "two-modules-in-one-text" / "two.hlo"
    refused = fastslow("optimize", two, "--evaluations", "2")
    assert refused.returncode == 2
    assert all(fact in refused.stderr for fact in ("two.hlo", "2 programs", "first_0", "--module"))
    done = fastslow("optimize", two, "--module", "second", "--evaluations", "2")
    assert done.returncode == 0, done.stderr


def test_one_program_is_read_for_the_commands_that_take_one(cases: Path, tmp_path: Path) -> None:
    path = cases / "two_functions.mlir"
    assert read_only_module(path, function="decode").num_nodes == 3
    assert read_only_module(cases / FORMS[-1]).num_nodes >= 3
    (tmp_path / "notes.txt").write_text("of mine")
    for missing, words in ((tmp_path, "holds no program"), (tmp_path / "no.hlo", "no such file")):
        with pytest.raises(InputError, match=words):
            read_only_module(missing)


def test_a_net_that_python_unrolled_is_described_in_seconds(cases: Path) -> None:
    """Its 800 dots read one tensor; compared in pairs they took 11 seconds, and four times as many
    sixteen times as long."""
    begin = time.process_time()
    (question,) = read_questions(cases / "a-recurrent-net-unrolled" / "unrolled.py")
    assert question.graph.num_nodes > 4000
    assert time.process_time() - begin < 5


def test_rankings_go_to_standard_output(fastslow: FastSlow, cases: Path, tmp_path: Path) -> None:
    path = shutil.copy(cases / "flags-of-a-tpu" / "plain.hlo", tmp_path / "plain.hlo")
    done = fastslow("rank", path, "--json", "-")
    (ranked,) = json.loads(done.stdout)
    assert ranked["graph"] == "plain" and len(ranked["configurations"]) == 27
    assert "27 configurations" in done.stderr
    done = fastslow("rank", path, "--csv", "-", "--json", "all.json")
    assert len(done.stdout.splitlines()) == 28
    assert json.loads((tmp_path / "all.json").read_text())[0]["file"] == str(path)
    assert fastslow("rank", path, "--csv", "-", "--json", "-").returncode == 2


@pytest.mark.parametrize(("end", "code", "said"), [
    (">&-", 2, "standard output is closed"),
    ("> /dev/full", 2, "standard output: cannot be written (No space left"), ("| true", 0, ""),
])  # fmt: skip
def test_rankings_that_nobody_takes(end: str, code: int, said: str, cases: Path) -> None:
    rank = shlex.join([sys.executable, "-m", "solution", "rank", str(cases / "rank_seven.hlo")])
    shell = ["bash", "-c", f"{rank} --json - {end}"]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code and said in done.stderr
    assert "Traceback" not in done.stderr


def test_stablehlo_is_told_by_its_beginning() -> None:
    begins = ("module @a {", "module attributes {a = 1} {", "func.func @main() {", "#loc = loc(")
    for begin in (*begins, '"builtin.module"() ({'):
        assert find_form(f"// RUN: that\n{begin}\n HloModule".encode()) == STABLEHLO
    assert find_form(DOT.format(name="module").encode()) == HLO
    assert find_form(b"notes on a module of mine") == ""
