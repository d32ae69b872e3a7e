"""`fastslow choose`, as people call it."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from solution.choosing import harness
from solution.choosing.choose import BATCH, Settings, choose_program
from solution.choosing.guided import Beliefs
from solution.choosing.handing import CHOICE, MODULE
from solution.choosing.journal import RECORD
from solution.choosing.methods import make_proposer
from solution.choosing.verdict import Verdict
from solution.cli import EXIT_ENDED
from solution.collecting.child import Compile
from solution.collecting.cpu import Builder, Workers
from solution.collecting.journal import SOUND
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import read_records
from solution.programs.program import read_programs
from solution.serving.bundle import load_bundle
from solution.system.errors import InputError
from solution.system.files import locked
from tests.choosing.made import make_free
from tests.conftest import FastSlow
from tests.made.graphs import make_tile_graph, write_graph
from tests.made.timed import DENSE, RAGGED

KERNEL = "npz/tile/xla/valid"
CASES = Path(__file__).parent.parent / "collecting" / "cases"


def test_a_replay_shows_the_regret_by_measurements(fastslow: FastSlow, sample: Path) -> None:
    file = min((sample / KERNEL).glob("*.npz"))
    done = fastslow("choose", file, "--replay", "--measure", "9")
    assert done.returncode == 0, done.stderr
    assert "looked 9 of" in done.stdout
    assert ", 9: 0.00%." in done.stdout  # the last, too
    done = fastslow("choose", file, "--replay", "--search", "random", "--measure", "6")
    assert done.returncode == 0, done.stderr
    assert "random" in done.stdout


def test_an_order_needs_a_model() -> None:
    with pytest.raises(InputError, match="--search order.*follows"):
        make_proposer("order", make_free(), None, Beliefs(), 0)


def test_the_model_alone_measures_nothing(fastslow: FastSlow, sample: Path) -> None:
    file = min((sample / KERNEL).glob("*.npz"))
    done = fastslow("choose", file, "--model-only")
    assert done.returncode == 0, done.stderr
    assert "measured" in done.stdout


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
        (("choose", file, "--replay", "--search", "genetics"), "Did you mean genetic? Give one of"),
        (("choose", file, "--replay", "--search", "tpe", "--with", file), "Leave --with out"),
        (("choose", file), "Give --replay"),
        (("choose", "my_program.py", "--collection", "tile:xla"), "--collection is for"),
        # options that would be ignored
        (("choose", file, "--replay", "--over", "tiles"), "Give --replay .* or --over "),
        (("choose", file, "--replay", "--replace"), "Give --replay .* or --replace "),
        (("choose", file, "--model-only", "--measure", "9"), "Give --model-only .* or --measure "),
        (("choose", file, "--model-only", "--search", "tpe"), "Give --model-only .* or --search "),
    ):
        done = fastslow(*words)
        assert done.returncode == 2, done
        assert re.search(expected, " ".join(done.stderr.split())), done
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
    again = choose_program(path, bundle, out, Settings(6, rounds=2), notes.append)
    assert not (out / CHOICE).exists() and not (out / MODULE).exists()
    assert again.trials[:4] == first.trials and len(again.trials) == 6
    assert again.reference == first.reference
    monkeypatch.setattr(harness, "judge", lambda *_: Verdict(9.0, 8.9, 9.1, 2))
    ended = choose_program(path, bundle, out, Settings(6, rounds=2), notes.append)
    assert ended.verdict == again.verdict  # chance is not asked once more
    assert not (out / CHOICE).exists()
    twice = Settings(6, kinds=("options", "layouts", "options"), rounds=2)
    with pytest.raises(InputError, match="not layouts"):
        choose_program(path, bundle, out, twice, notes.append)
    with pytest.raises(InputError, match="seed.*0.*1"):
        choose_program(path, bundle, out, Settings(6, seed=1), notes.append)
    with pytest.raises(InputError, match="not genetic"):
        choose_program(path, bundle, out, Settings(6, search="genetic"), notes.append)
    other = choose_program(path, bundle, out, Settings(2, search="genetic", replace=True), print)
    assert "genetic" in other.note
    record = json.loads((out / RECORD).read_text())
    assert record["identity"]["search"] == "genetic"
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
    first = choose_program(path, bundle, out, Settings(6, rounds=2), print)
    monkeypatch.setattr(harness, "judge", lambda *_: Verdict(1.0, 0.9, 1.1, 2))
    fewer = choose_program(path, bundle, out, Settings(2, rounds=2), print)
    assert (fewer.verdict, fewer.trials) == (first.verdict, first.trials)
    assert fewer.note.startswith(first.note) and "4" in fewer.note[len(first.note) :]
    assert (out / CHOICE).exists() and (out / MODULE).exists()
    (out / "repository").mkdir()
    (out / "repository" / "mine.py").write_text("mine")
    afresh = Settings(2, rounds=2, replace=True)
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
    pytest.importorskip("jax")  # the extra `collect`
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


def test_a_search_that_would_not_end_is_none() -> None:
    with pytest.raises(ValueError, match="found neither"):
        Settings(None)
    assert Settings(None, 60).measurements is None


@pytest.mark.slow
def test_what_is_written_is_what_the_compiler_takes(fastslow: FastSlow, tmp_path: Path) -> None:
    """A product for which nearly every tile beats the library's, or nothing is written."""
    (tmp_path / "ragged.py").write_text(RAGGED)
    done = fastslow("choose", "ragged.py", "--over", "tiles", "--measure", "8")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "chosen" / "ragged"
    if "No gain can be shown" in done.stdout:
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
    done = fastslow("choose", "wide.hlo", "--over", "tiles", "--measure", "40", "--minutes", "3")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "chosen" / "wide" / CHOICE
    if not path.exists():
        assert "No gain can be shown" in done.stdout
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
    assert done.returncode == 0, done.stderr
    assert "of 3 configurations" in done.stdout
