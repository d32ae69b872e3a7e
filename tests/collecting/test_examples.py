"""The worked example runs, every form of program is read, and models are made from seeds.

Also releases of measured programs, and the bundled sample of them.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.collected_sample import COUNTS, Sample, draw_drafts, find_architectures
from benchmarks.release import pack
from solution.analysis.data_check import check_files
from solution.collecting.child import Compile
from solution.collecting.cpu import Builder, Workers
from solution.collecting.families import write_programs
from solution.collecting.program_space import LAYOUTS, make_collected_space
from solution.collecting.space import draw_new
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.programs.child import Child, Limits
from solution.programs.compiler import Compiler
from solution.programs.hlo.messages import instructions
from solution.programs.program import read_programs
from solution.system.errors import InputError
from tests.conftest import REPOSITORY, SHARED, FastSlow, assert_refused
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.made.timed import read_file, read_text

EXAMPLES = REPOSITORY / "solution" / "collecting" / "examples"
STATIC = """
import functools, jax
@functools.partial(jax.jit, static_argnums=1)
def program(x, times):
    return times * x
arguments = (1.0, 3)
"""
STABLEHLO = """
module @made {
  func.func public @main(%arg0: tensor<8x16xf32>, %arg1: tensor<16x4xbf16>) -> tensor<32xf32> {
    %0 = stablehlo.convert %arg1 : (tensor<16x4xbf16>) -> tensor<16x4xf32>
    %1 = stablehlo.dot %arg0, %0 : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<8x4xf32>) -> tensor<32xf32>
    return %2 : tensor<32xf32>
  }
}
"""
HLO = """
HloModule made, entry_computation_layout={(f32[8,16]{1,0}, s32[4]{0})->(f32[8,4]{1,0}, s32[4]{0})}

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  places = s32[4]{0} parameter(1)
  t = f32[16,8]{1,0} transpose(x), dimensions={1,0}
  w = f32[16,4]{1,0} slice(t), slice={[0:16], [0:4]}
  product = f32[8,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[8,4]{1,0}, s32[4]{0}) tuple(product, places)
}
"""
HALVES = """
HloModule halves, entry_computation_layout={((s64[3]{0}, f32[8,4]{1,0}))->(s64[3]{0}, u32[3]{0})}

ENTRY main {
  all = (s64[3]{0}, f32[8,4]{1,0}) parameter(0)
  x = s64[3]{0} get-tuple-element(all), index=0
  low = u32[3]{0} custom-call(x), custom_call_target="X64SplitLow"
  high = u32[3]{0} custom-call(x), custom_call_target="X64SplitHigh"
  again = s64[3]{0} custom-call(low, high), custom_call_target="X64Combine"
  ROOT both = (s64[3]{0}, u32[3]{0}) tuple(again, high)
}
"""


@pytest.mark.slow
def test_the_worked_example_runs(tmp_path: Path) -> None:
    fastslow = Path(sys.executable).parent / "fastslow"
    environment = os.environ | {"FASTSLOW": str(fastslow), "CONFIGS": "9"}
    command = ["bash", str(EXAMPLES / "worked_example.sh"), str(tmp_path / "out"), "3"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)
    assert result.returncode == 0, result.stderr
    for name in ("mlp", "cnn", "transformer", "product"):
        assert name in result.stdout
    assert (tmp_path / "out" / "report.png").exists()


@pytest.mark.parametrize(("name", "text"), [("made.mlir", STABLEHLO), ("made.hlo", HLO)])
def test_text_is_read_compiled_and_configured(
    name: str, text: str, workers: Workers, tmp_path: Path
) -> None:
    program = read_text(text, tmp_path / name, workers)
    builder, space = Builder(workers.compiling, program), make_collected_space(program, LAYOUTS)
    builder.open()
    for values in draw_new(space, np.random.default_rng(0), 3, set()):
        assert builder.build(Compile(*space.prepare(values)))[:2] == ("sound", "")


def test_dumps_of_a_tpu_are_compiled_for_the_cpu(workers: Workers, tpu: Path) -> None:
    """Their fusions, tiled layouts and halves of integers are written as plain programs."""
    programs = list(read_programs(tpu / "pb" / "op_tuning_data.pb", workers.compiling))
    for number in (0, 1, 14):
        assert Builder(workers.compiling, programs[number]).open().executable


def test_halves_of_integers_and_tuples_are_made_plain(workers: Workers, tmp_path: Path) -> None:
    """As in the modules of a TPU; the results are the argument, and its upper half."""
    program = read_text(HALVES, tmp_path / "halves.hlo", workers)
    assert [array.shape for array in program.arguments] == [(3,), (8, 4)]
    large = np.array([1, 2**40 + 5, -7], np.int64)
    program.arguments[0][:] = large
    executable = Builder(workers.compiling, program).open().executable
    assert executable
    compiler = Compiler()
    results = compiler.load(executable).run(compiler.place(program.arguments))
    np.testing.assert_array_equal(results[0], large)
    np.testing.assert_array_equal(results[1], (large >> 32).astype(np.uint32))


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("a.py", "program = 1\narguments = ()", "expected.*`program`"),
    ("a.py", "def program(x):\n    return x", "and NoneType"),
    ("a.py", "import nothing_such", "importing it"),
    ("a.py", "raise SystemExit('no module')", "importing it"),
    ("a.py", "def program(x):\n    return x.y\narguments = (1.0,)", "tracing `program`"),
    ("a.py", STATIC, "Python value"), ("a.mlir", "module { nonsense }", "expected StableHLO"),
    ("a.hlo", "nonsense", "expected HLO"),
    ("a.hlo", "HloModule a\nENTRY main { nonsense }", "expected HLO text.*2:[0-9]+: error"),
    ("a.hlo", "\ufeffHloModule a\nENTRY main { nonsense }", "2:[0-9]+: error"),
    ("a.hlo", " \n", "empty file"), ("a.mlir", STABLEHLO.replace("8x", "?x"), "parameter.*0"),
    ("a.onnx", "mine", "expected a program: Python"), ("a.pb", "", "empty file"),
])  # fmt: skip
def test_a_file_without_a_program_is_one_message(
    name: str, text: str, expected: str, workers: Workers, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=expected) as caught:
        list(read_programs(path, workers.compiling))
    assert str(caught.value).startswith(str(path))


TORCH = """
import torch

torch.manual_seed(0)
program = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 10)
)
arguments = (torch.randn(2, 3, 16, 16),)
"""


def test_a_torch_module_is_read_or_the_extra_is_named(workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    if find_spec("torchax") is None:
        with pytest.raises(InputError, match=r"pip install .*\[collect-torch\]"):
            read_text(TORCH, path, workers)
        return
    program = read_text(TORCH, path, workers)
    assert {i.opcode for i in instructions(program.module)} >= {"convolution", "dot", "reshape"}
    assert Builder(workers.compiling, program).open().executable


def test_a_program_has_the_same_digest_in_every_folder(tmp_path: Path) -> None:
    """Also if it is read twice and after other programs: the module does not depend on these."""
    found = []
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        path = Path(shutil.copy(EXAMPLES / "mlp.py", tmp_path / folder))
        with Child(Limits()) as child:
            found += [program for _ in range(2) for program in read_programs(path, child)]
    assert len({program.digest for program in found}) == 1
    assert str(tmp_path).encode() not in found[0].plain


README = REPOSITORY / "docs" / "measured-programs.md"


def make_data(folder: Path) -> Path:
    """Write four training kernels, a validation program, and a test graph of each kind."""
    for number in range(4):
        write_graph(make_tile_graph(number, name=f"k{number}"), folder, "train")
    write_graph(make_layout_graph(0, name="p0"), folder, "valid")
    write_graph(make_layout_graph(1, name="asked", labelled=False), folder, "test")
    write_graph(make_tile_graph(9, name="k9", labelled=False), folder, "test")
    (folder / "sample_submission.csv").write_text("ID,TopConfigs\ntile:xla:k9,0;1;2;3;4\n")
    return folder


def test_a_release_is_unpacked_compared_and_run_on(fastslow: FastSlow, tmp_path: Path) -> None:
    made = pack(make_data(tmp_path / "measured"), README, tmp_path / "build" / "measured.zip")
    assert made.graphs == 7
    with zipfile.ZipFile(made.path) as archive:
        archive.extractall(tmp_path / "clone")
    there = tmp_path / "clone" / "measured"
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=there, check=True)
    words = (there / "README.md").read_text(encoding="utf-8")
    assert words.startswith(README.read_text(encoding="utf-8").rstrip())
    assert re.search(r"\| tile:xla \| 4 / 0 / 1 \| \d+ \| \d+\.\d\d \|", words)
    assert "layout:xla:random 1 of 1" in words  # it has the operations of the valid one

    assert "7 files" in fastslow("check", there).stdout
    ran = fastslow("run", there, "--experiment", "nothing_001", "--folds", "2", "--run", "out")
    assert "out/submission.csv (1 row, checked)" in ran.stdout, ran.stderr


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (make_data(tmp_path / name / "measured") for name in ("one", "two"))
    for number, path in enumerate(sorted(second.rglob("*"))):  # other times and permissions
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (number, number))
    (second / "log").mkdir()
    (second / "log" / "state.json").write_text("{}")  # a file of a collection
    one = pack(first, README, tmp_path / "one.zip")
    two = pack(second, README, tmp_path / "two.zip")
    assert one.path.read_bytes() == two.path.read_bytes()

    readme = tmp_path / "other.md"
    readme.write_text("# Other words\n")
    other = pack(first, readme, tmp_path / "other.zip")
    assert other.data_digest == one.data_digest
    assert other.path.read_bytes() != one.path.read_bytes()


def test_a_defective_file_is_not_published(tmp_path: Path) -> None:
    folder, out = make_data(tmp_path / "measured"), tmp_path / "measured.zip"
    (path,) = folder.rglob("k2.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="1"):
        pack(folder, README, out)
    path.unlink()
    with pytest.raises(InputError, match="nowhere.md"):
        pack(folder, tmp_path / "nowhere.md", out)
    assert not out.exists()


def test_make_names_the_missing_data(tmp_path: Path) -> None:
    for target in ("papers", "release-data"):
        command = ["make", target, f"SHARED={tmp_path}"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert f"{tmp_path}/cpugraphs: there is no such folder" in assert_refused(done)
        assert "docs/measured-programs.md" in done.stderr and not done.stdout


COLLECTED = REPOSITORY / "solution" / "data" / "collected"


def read_layouts() -> dict[tuple[str, str], list[str]]:
    """Return architectures by collection and split."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in find_files(COLLECTED):
        if file.collection.kind == "layout":
            architecture = read_graph(file.path, file.collection).architecture
            found.setdefault((file.collection.name, file.split), []).append(architecture)
    return found


def test_every_bundled_file_is_sound_and_no_architecture_is_repeated() -> None:
    _, defects, _ = check_files(find_files(COLLECTED))
    assert not defects
    layouts = read_layouts()
    for name in {name for name, _ in layouts}:
        found = [a for (other, _), some in layouts.items() if other == name for a in some]
        assert len(set(found)) == len(found) > 10


def test_no_test_graph_is_among_them() -> None:
    if not (SHARED / "cpugraphs").is_dir():
        pytest.skip("the measured CPU graphs are not here")
    tested = find_architectures(SHARED / "cpugraphs")
    assert len(tested) > 10
    assert not tested & {a for found in read_layouts().values() for a in found}


def test_collected_drafts_are_not_collected_again() -> None:
    """Each note has its graph; the drafts are drawn in the same order everywhere."""
    sample = Sample(COLLECTED, set(), workers=None, say=print)
    for name in COUNTS:
        notes = COLLECTED / "drafts" / name.replace(":", "-")
        known = {path.stem for path in notes.glob("*.json")}
        assert known <= {draft.name for draft in draw_drafts(name)}
        following = sample.find_next(name)
        assert (following is None) == (sample.count(name) == COUNTS[name])
        assert following is None or following.name not in known
        graphs = [file for file in find_files(COLLECTED) if file.collection.name == name]
        assert sample.count(name) == len(graphs)


def test_programs_of_a_family_are_reproducible_and_read(workers: Workers, tmp_path: Path) -> None:
    """Different numbers are different programs."""
    paths = write_programs(tmp_path / "one", "mlp", 3)
    again = write_programs(tmp_path / "other", "mlp", 2)
    assert [path.read_text() for path in again] == [path.read_text() for path in paths[:2]]
    programs = [read_file(path, workers) for path in paths[:2]]
    assert [program.name for program in programs] == ["mlp_000", "mlp_001"]
    assert len({program.digest for program in programs}) == 2
    with pytest.raises(InputError, match="families convnet"):
        write_programs(tmp_path, "lstm", 1)
