"""`fastslow choose`, as people call it, and verify.py, which it writes for a machine with a TPU.

Here verify.py runs on the CPU.
"""

import hashlib
import json
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")  # the extra `collect`

from solution.choosing import harness, verdict
from solution.choosing import verify as script
from solution.choosing.choose import BATCH, Settings, choose_program, open_journal
from solution.choosing.guided import Beliefs
from solution.choosing.handing import CHOICE, MODULE, describe_choice, hand_over
from solution.choosing.in_jax import SNIPPET
from solution.choosing.journal import RECORD, Journal, Trial
from solution.choosing.measured import describe_measured, judge_rounds, list_measured
from solution.choosing.methods import make_proposer
from solution.choosing.tpu_files import ARGUMENTS, DEFAULT_MODULE, SCRIPT
from solution.choosing.verdict import Verdict
from solution.cli import EXIT_ENDED
from solution.collecting import comparison, timing
from solution.collecting.child import Compile
from solution.collecting.cpu import Builder, Workers
from solution.collecting.journal import SOUND
from solution.collecting.program_space import make_program_space
from solution.programs.child import Limits
from solution.programs.compiler import Compiler, Flags
from solution.programs.hlo.messages import read_records
from solution.programs.program import read_programs
from solution.serving.bundle import load_bundle
from solution.system.errors import InputError
from solution.system.files import locked
from tests.choosing.made import make_free
from tests.conftest import FastSlow, assert_refused, assert_said
from tests.made.graphs import make_tile_graph, write_graph
from tests.made.timed import DENSE, RAGGED

KERNEL = "npz/tile/xla/valid"
CASES = Path(__file__).parent.parent / "collecting" / "cases"


def test_a_replay_shows_the_regret_by_measurements(fastslow: FastSlow, sample: Path) -> None:
    file = min((sample / KERNEL).glob("*.npz"))
    said = assert_said(fastslow("choose", file, "--replay", "--measure", "9"))
    assert "looked 9 of" in said and ", 9: 0.00%." in said  # the last, too
    words = ("--search", "random", "--measure", "6")
    assert "random" in assert_said(fastslow("choose", file, "--replay", *words))
    assert "measured" in assert_said(fastslow("choose", file, "--model-only"))


def test_an_order_needs_a_model() -> None:
    with pytest.raises(InputError, match="--search order.*follows"):
        make_proposer("order", make_free(), None, Beliefs(), 0)


def test_bad_input_is_one_message(fastslow: FastSlow, sample: Path, tmp_path: Path) -> None:
    file = min((sample / KERNEL).glob("*.npz"))
    unlabelled = min((sample / "npz/tile/xla/test").glob("*.npz"))
    single = tmp_path / KERNEL / "single.npz"
    single.parent.mkdir(parents=True)
    with np.load(file) as arrays:
        np.savez(single, **{k: v[:1] if k.startswith("config_") else v for k, v in arrays.items()})
    empty = tmp_path / "empty.py"
    empty.write_text("program = 3\n")
    for words, expected in (
        (("choose", file, "--replay", "--model-only"), "not both"),
        (("choose", unlabelled, "--replay"), "has no runtimes to look up"),
        (("choose", single, "--replay"), "has one configuration"),
        (("choose", tmp_path / "missing.py"), "missing.py: there is no such file"),
        (("choose", tmp_path), "is a folder"),
        (("choose", empty), "`program`"),
        (("choose", file, "--replay", "--search", "genetics"), r"mean genetic\? Give one of"),
        (("choose", file, "--replay", "--search", "tpe", "--with", file), "Leave --with out"),
        (("choose", file), "Give --replay"),
        (("choose", "my_program.py", "--collection", "tile:xla"), "--collection is for"),
        # options that would be ignored
        (("choose", file, "--replay", "--over", "tiles"), "Give --replay .* or --over "),
        (("choose", file, "--replay", "--replace"), "Give --replay .* or --replace "),
        (("choose", file, "--model-only", "--measure", "9"), "Give --model-only .* or --measure "),
        (("choose", file, "--model-only", "--search", "tpe"), "Give --model-only .* or --search "),
    ):
        said = assert_refused(fastslow(*words))
        assert re.search(expected, said), said
        assert not (tmp_path / "chosen").exists()


def test_the_same_command_resumes_a_search_and_other_settings_are_refused(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dense.py"
    path.write_text(DENSE)
    out, bundle = tmp_path / "chosen", load_bundle()
    notes: list[str] = []
    first = choose_program(path, bundle, out, Settings(4, rounds=2), notes.append)
    assert len(first.trials) == 4 and (out / "search.png").exists()
    record = json.loads((out / RECORD).read_text())
    assert len(record["trials"]) == 5  # the default among them
    for name in (CHOICE, MODULE):
        (out / name).write_text("of an earlier gain")
    monkeypatch.setattr(harness, "judge", lambda *_: Verdict(1.0, 0.9, 1.1, 2))
    again = choose_program(path, bundle, out, Settings(6, rounds=1), notes.append)
    assert not (out / CHOICE).exists() and not (out / MODULE).exists()
    assert again.trials[:4] == first.trials and len(again.trials) == 6
    assert again.reference == first.reference
    monkeypatch.setattr(harness, "judge", lambda *_: Verdict(9.0, 8.9, 9.1, 2))
    ended = choose_program(path, bundle, out, Settings(6, rounds=1), notes.append)
    assert ended.verdict == again.verdict  # chance is not asked once more
    assert not (out / CHOICE).exists()
    twice = Settings(6, kinds=("options", "layouts", "options"), rounds=2)
    with pytest.raises(InputError, match="not layouts"):
        choose_program(path, bundle, out, twice, notes.append)
    with pytest.raises(InputError, match="seed.*0.*1"):
        choose_program(path, bundle, out, Settings(6, seed=1), notes.append)
    with pytest.raises(InputError, match="not genetic"):
        choose_program(path, bundle, out, Settings(6, search="genetic"), notes.append)
    genetic = Settings(2, search="genetic", rounds=1, replace=True)
    assert "genetic" in choose_program(path, bundle, out, genetic, print).note
    assert json.loads((out / RECORD).read_text())["identity"]["search"] == "genetic"
    path.write_text("program = 3\n")
    with pytest.raises(InputError, match="expected.*`program`"):
        choose_program(path, bundle, out, Settings(6, replace=True), notes.append)
    assert (out / RECORD).exists()


def test_fewer_measurements_keep_the_result_and_replace_keeps_files_of_the_user(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, bundle = tmp_path / "dense.py", tmp_path / "chosen", load_bundle()
    path.write_text(DENSE)
    monkeypatch.setattr(harness, "judge", lambda *_: Verdict(9.0, 8.9, 9.1, 2))
    first = choose_program(path, bundle, out, Settings(6, rounds=1), print)
    monkeypatch.setattr(harness, "judge", lambda *_: Verdict(1.0, 0.9, 1.1, 2))
    fewer = choose_program(path, bundle, out, Settings(2, rounds=1), print)
    assert (fewer.verdict, fewer.trials) == (first.verdict, first.trials)
    assert fewer.note.startswith(first.note) and "4" in fewer.note[len(first.note) :]
    assert (out / CHOICE).exists() and (out / MODULE).exists()
    (out / "repository").mkdir()
    (out / "repository" / "mine.py").write_text("mine")
    afresh = Settings(2, rounds=1, replace=True)
    with locked(out, ""), pytest.raises(InputError, match="another process"):
        choose_program(path, bundle, out, afresh, print)
    assert (out / CHOICE).exists() and (out / RECORD).exists()
    again = choose_program(path, bundle, out, afresh, print)
    assert len(again.trials) == 2 and again.note == first.note
    assert not (out / CHOICE).exists() and not (out / MODULE).exists()
    assert (out / "repository" / "mine.py").exists()


def test_a_second_is_searched_if_the_final_comparison_takes_all_of_the_time(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repetitions of a slow program take as long as its runs."""
    path = tmp_path / "dense.py"
    path.write_text(DENSE)
    monkeypatch.setattr(harness, "LEAST_FINAL", 10**9)
    timed = Settings(None, seconds=30, search="random", rounds=2)
    trials = choose_program(path, None, tmp_path / "chosen", timed, print).trials
    assert sum(trial.seconds for trial in trials[:-BATCH]) < 1


def test_asked_to_end_it_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "dense.py").write_text(DENSE)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "solution", "choose", "dense.py", "--measure", "99"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list(scratch.glob("*/fastslow-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # until the bundle is unpacked and a child is started
    assert list(scratch.glob("*/fastslow-*/printed.txt"))
    process.terminate()
    assert process.wait(60) == EXIT_ENDED
    assert not list(scratch.glob("fastslow-run-*"))


IN_JAX = """
import runpy, jax, jax.numpy as jnp, numpy as np
chosen, dense = runpy.run_path("in_jax.py"), runpy.run_path("dense.py")
((name, tensor, sizes, order),) = chosen["LAYOUTS"]
assert "dot_general" in name and tensor == "output", (name, tensor)

def program(x, weights, more):
    product = x @ weights
    assert product.shape == sizes
    product = chosen["with_layout_constraint"](product, chosen["Layout"](major_to_minor=order))
    return jnp.tanh(product).reshape(8, 4, 24).transpose(1, 0, 2) @ more

arguments = dense["arguments"]
lowered = jax.jit(program).lower(*arguments)
compiled = lowered.compile(compiler_options=chosen["COMPILER_OPTIONS"])
np.testing.assert_allclose(compiled(*arguments), dense["program"](*arguments), rtol=1e-3, atol=1e-3)
print(lowered.as_text("hlo"))
"""


def test_layouts_and_options_go_back_into_jax(workers: Workers, tmp_path: Path) -> None:
    """The program with the constraint asks for the layout that chosen.pb asks for."""
    (tmp_path / "dense.py").write_text(DENSE)
    (program,) = read_programs(tmp_path / "dense.py", workers.compiling)
    space = make_program_space(program, ())
    config = space.default.copy()
    config[0] = 1  # the first product's output, transposed
    config[[-3, -2]] = 1  # wide vectors, no unrolling
    paths = hand_over(space, config, tmp_path, {})
    assert [path.name for path in paths] == [CHOICE, MODULE, SNIPPET]
    assert describe_choice(space, config).count("output {0,1}") == 1
    flags = runpy.run_path(str(tmp_path / SNIPPET))["XLA_FLAGS"]
    assert flags == "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling=true"
    done = subprocess.run(
        [sys.executable, "-c", IN_JAX], cwd=tmp_path, env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "LayoutConstraint" in line]
    assert "f32[32,24]{0,1}" in line


def test_a_search_that_would_not_end_is_none() -> None:
    with pytest.raises(ValueError, match="found neither"):
        Settings(None)
    assert Settings(None, 60).measurements is None


@pytest.mark.slow
def test_what_is_written_is_what_the_compiler_takes(fastslow: FastSlow, tmp_path: Path) -> None:
    """A product for which nearly every tile beats the library's, or nothing is written."""
    (tmp_path / "ragged.py").write_text(RAGGED)
    said = assert_said(fastslow("choose", "ragged.py", "--over", "tiles", "--measure", "8"))
    folder = tmp_path / "chosen" / "ragged"
    if "No gain can be shown" in said:
        assert not (folder / CHOICE).exists()
        return
    choice = json.loads((folder / CHOICE).read_text())
    assert choice["gain"] > 1
    assert "xla_llvm_ir_gemm_tile_size" in choice["xla_backend_extra_options"]
    assert len(list(read_records(folder / "chosen.pb"))) == 1


@pytest.mark.slow
def test_what_is_chosen_computes_right_numbers_where_roots_are_taken(
    fastslow: FastSlow, workers: Workers, tmp_path: Path
) -> None:
    """Roots of drawn numbers are NaN where these are negative, and then nothing could differ."""
    shutil.copy(CASES / "wide.hlo", tmp_path)
    words = ("--over", "tiles", "--measure", "40", "--minutes", "3")
    said = assert_said(fastslow("choose", "wide.hlo", *words))
    path = tmp_path / "chosen" / "wide" / CHOICE
    if not path.exists():
        assert "No gain can be shown" in said
        return
    choice = json.loads(path.read_text())
    kinds = ("compiler_options", "xla_backend_extra_options")
    (program,) = read_programs(CASES / "finite.hlo", workers.compiling)
    builder = Builder(workers.compiling, program, needs_edges=True)
    flags = Flags(*(tuple(choice[kind].items()) for kind in kinds))
    assert builder.build(Compile(program.plain, flags))[:2] == (SOUND, "")


def test_a_table_whose_tiles_are_all_alike_ends(fastslow: FastSlow, tmp_path: Path) -> None:
    file = write_graph(make_tile_graph(configs=3), tmp_path)
    done = fastslow("choose", file, "--replay", "--measure", "50")
    assert "of 3 configurations" in assert_said(done)


# the script's numbers of repetitions and so on, and smaller ones, with which a test takes seconds
LONG = "ROUNDS, COPIES = 6, 3\nPASSES, LEAST_PASSES, PASS_SECONDS = 30, 4, 5.0\n"
SHORT = "ROUNDS, COPIES = 3, 1\nPASSES, LEAST_PASSES, PASS_SECONDS = 8, 4, 1.0\n"
# A product; then the same result with two more products that add almost nothing.
HALF = """HloModule half
ENTRY main {
  left = f32[256,256]{1,0} parameter(0)
  right = f32[256,256]{1,0} parameter(1)
  one = f32[256,256]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT end = f32[256,256]{1,0} tanh(one)
}
"""
WASTED = """HloModule wasted
ENTRY main {
  left = f32[256,256]{1,0} parameter(0)
  right = f32[256,256]{1,0} parameter(1)
  one = f32[256,256]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  again = f32[256,256]{1,0} dot(right, left), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  more = f32[256,256]{1,0} dot(again, left), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  small = f32[256,256]{1,0} multiply(more, more)
  tiny = f32[] constant(1e-30)
  tinies = f32[256,256]{1,0} broadcast(tiny), dimensions={}
  scaled = f32[256,256]{1,0} multiply(small, tinies)
  sum = f32[256,256]{1,0} add(one, scaled)
  ROOT end = f32[256,256]{1,0} tanh(sum)
}
"""


def write_folder(folder: Path, default: str, chosen: str, result: str | None = "c") -> Path:
    """Write what `choose` writes for a TPU, with a shorter script, and a record of the search."""
    folder.mkdir()
    for name, text in ((DEFAULT_MODULE, default), (MODULE, chosen)):
        (folder / name).write_bytes(Compiler().parse_hlo(text))
    checksums = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in (DEFAULT_MODULE, MODULE)
    }
    choice = {
        "program": "made", "choice": "c", "compiler_options": {}, "checksums": checksums,
        "target": "tpu:v3", "devices": ["TPU v3"],
        "parameters": [[[256, 256], "float32"]] * 2,
    }  # fmt: skip
    (folder / CHOICE).write_text(json.dumps(choice))
    text = Path(script.__file__).read_text()
    assert LONG in text
    (folder / SCRIPT).write_text(text.replace(LONG, SHORT))
    identity = {"target": "tpu:v3"}
    Journal(folder, identity, result={"choice": result, "measured": []}).write()
    return folder


def verify(folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the script as on another machine: none of this project's modules can be imported."""
    done = subprocess.run(
        [sys.executable, SCRIPT], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
    )  # fmt: skip
    path = folder / script.VERDICT
    return done, json.loads(path.read_text()) if path.exists() else {}


def test_it_needs_jax_alone() -> None:
    text = Path(script.__file__).read_text()
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))
    # numpy and scipy come with jax
    assert imported - set(sys.stdlib_module_names) == {"jax", "jaxlib", "numpy", "scipy"}


def test_help_is_no_folder() -> None:
    done = subprocess.run(
        [sys.executable, script.__file__, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "python verify.py [FOLDER]" in done.stdout
    assert "no such file" not in done.stderr


def test_its_rules_are_those_of_choose() -> None:
    rules = {
        "ROUNDS": verdict.ROUNDS, "CONFIDENCE": verdict.CONFIDENCE, "LEAST_GAIN": verdict.LEAST,
        "PASSES": harness.FINAL_PASSES, "LEAST_PASSES": harness.LEAST_FINAL,
        "PASS_SECONDS": harness.FINAL_SECONDS, "COPIES": harness.COPIES,
        "VISIT_NANOSECONDS": timing.VISIT_NANOSECONDS,
        "MIN_RUNS": timing.MIN_RUNS, "MAX_RUNS": timing.MAX_RUNS,
    }  # fmt: skip
    assert {name: getattr(script, name) for name in rules} == rules
    generator = np.random.default_rng(0)
    for _ in range(20):
        times = generator.lognormal(0, 0.1, (2, 6))
        expected, found = verdict.judge(*times), script.judge(*times)
        numbers = {"gain": expected.gain, "low": expected.low, "high": expected.high}
        assert found == pytest.approx(numbers)
        assert script.describe(found).startswith("No gain") == (not expected.is_gain)


def test_its_comparison_is_that_of_choose() -> None:
    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float16, np.int32, np.complex64):
        for scale in (0.0, 1e-6, 1e-3, 1e-1, math.inf):
            right = (10 * generator.standard_normal((4, 50))).astype(dtype)
            with np.errstate(invalid="ignore"):
                wrong = right + (scale * generator.standard_normal(right.shape)).astype(dtype)
            allowed = [script.find_tolerance(right.dtype)]
            assert allowed == comparison.find_tolerances([right])
            found = script.find_deviation([wrong], [right], allowed)
            expected = comparison.find_deviation([wrong], [right])
            assert found == expected, (dtype, scale)


def test_a_gain_is_shown_and_the_record_takes_it_back(fastslow: FastSlow, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", WASTED, HALF)
    done, found = verify(folder)
    assert done.returncode == 0, done.stderr
    assert found["gain"] > 1.5 and found["low"] > 1 and not found["defect"]
    assert "proves nothing about tpu:v3" in done.stdout
    assert len(found["nanoseconds"]) == 3 and found["platform"] == "cpu"
    expected = judge_rounds(found)
    assert expected.gain == pytest.approx(found["gain"]) and expected.is_gain
    assert f"{found['gain']:.3f}" in done.stdout
    for _ in range(2):
        taken = assert_said(fastslow("choose", "--verdict", folder / script.VERDICT))
        assert f"{found['gain']:.3f}" in taken and "nothing about tpu:v3" in taken
    # a verdict that lies elsewhere is about the search in chosen/ that has its result
    shutil.copytree(folder, tmp_path / "chosen" / "of any name")
    shutil.move(folder / script.VERDICT, tmp_path)
    assert "of any name" in assert_said(fastslow("choose", "--verdict", script.VERDICT))
    (measured,) = json.loads((folder / RECORD).read_text())["result"]["measured"]
    assert measured["nanoseconds"] == found["nanoseconds"]


def test_wrong_results_are_refused_and_not_timed(fastslow: FastSlow, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", WASTED, HALF.replace("tanh", "sine"))
    done, found = verify(folder)
    assert done.returncode == 1
    assert "wrong" in found["defect"] and found["nanoseconds"] == []
    assert "Do not use" in done.stdout
    taken = assert_said(fastslow("choose", "--verdict", folder / script.VERDICT))
    assert "do not use" in taken and "nothing about tpu:v3" in taken


def test_what_exceeded_a_lower_limit_is_tried_again(tmp_path: Path) -> None:
    notes = {
        "slow": Limits(seconds=1).describe_seconds(),
        "large": Limits(megabytes=1000).describe_megabytes(),
        "wrong": "its results are wrong",
        "sound": "",
    }
    trials = {name: Trial(name, [0], None, note) for name, note in notes.items()}
    Journal(tmp_path, {}, trials).write()

    def find_dropped(seconds: float, megabytes: int) -> set[str]:
        settings = Settings(measurements=1, limits=Limits(seconds, megabytes))
        with open_journal(tmp_path, {}, {}, settings, ()) as journal:
            return set(notes) - set(journal.trials)

    assert "1 second" in notes["slow"] and "seconds" not in notes["slow"]
    assert find_dropped(1, 1000) == set()
    assert find_dropped(1.5, 1000) == {"slow"}
    assert find_dropped(0.5, 2000) == {"large"}


def test_only_a_verdict_of_the_target_counts() -> None:
    measured = {"defect": "", "nanoseconds": [[200, 100], [201, 100]]}
    for device, target, counts in (
        ("TPU v3", "tpu:v3", True),
        ("TPU v5 lite", "tpu:v5e", True),
        ("TPU v5", "tpu:v5p", True),
        ("TPU v5", "tpu:v5e", False),
        ("TPU v4", "tpu:v3", False),
        ("cpu", "tpu:v3", False),
    ):
        said = describe_measured({**measured, "device": device}, target)
        assert ("nothing" not in said) == counts and device in said


def test_measurements_of_earlier_choices_are_kept() -> None:
    first, second = [{"device": "one"}], [{"device": "two"}]
    assert list_measured(None) == {}
    assert list_measured({"choice": "a", "measured": first}) == {"a": first}
    assert list_measured({"choice": None, "measured": [], "earlier": {"a": first}}) == {"a": first}
    kept = list_measured({"choice": "b", "measured": second, "earlier": {"a": first}})
    assert kept == {"a": first, "b": second}


def test_options_that_the_device_does_not_have_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", WASTED, HALF)
    choice = json.loads((folder / CHOICE).read_text())
    choice["compiler_options"] = {"xla_tpu_dot_dot_fusion": "true"}
    (folder / CHOICE).write_text(json.dumps(choice))
    done, _ = verify(folder)
    assert done.returncode and "Traceback" not in done.stderr
    assert "xla_tpu_dot_dot_fusion" in done.stderr and "tpu:v3" in done.stderr


def test_results_that_show_nothing_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", HALF, HALF)
    np.savez(folder / ARGUMENTS, **{"0": np.zeros((256, 256), np.float32)})
    done, found = verify(folder)
    assert done.returncode == 1 and "constant" in found["defect"]


def test_another_file_is_one_message(fastslow: FastSlow, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", HALF, HALF, result="another")
    path = folder / script.VERDICT
    (folder / MODULE).write_bytes((folder / MODULE).read_bytes()[:-1])
    for _ in ("other bytes", "missing"):
        done, _ = verify(folder)
        assert done.returncode and MODULE in done.stderr and "Traceback" not in done.stderr
        (folder / MODULE).unlink(missing_ok=True)
    found = dict.fromkeys(("program", "device", "platform", "jax", "clock"), "made")
    found |= {"choice": "c", "defect": "", "nanoseconds": [[2.0, 1.0], [2.0, 1.1]]}
    path.write_text(json.dumps(found))
    words = ("choose", "--verdict", path)
    assert "another configuration" in assert_refused(fastslow(*words))
    assert RECORD in assert_refused(fastslow(*words, "--out", tmp_path / "nowhere"))
    path.write_text(json.dumps({**found, "nanoseconds": [[2.0, 1.0], [2.0, -1.1]]}))
    assert "nanoseconds" in assert_refused(fastslow(*words))
