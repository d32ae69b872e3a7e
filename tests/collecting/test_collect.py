"""Collections from the program to the npz file, also stopped and with other settings.

And targets by name, and machines that cannot compile for them.
"""

import json
import pickle
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.collecting.collect import MIN_CONFIGS, ProgramCollection, Settings
from solution.collecting.cpu import Workers
from solution.collecting.journal import (
    CANDIDATE_FILE,
    REFUSED,
    REPEAT_FILE,
    SOUND,
    STATE,
    Journal,
)
from solution.collecting.program_space import LAYOUTS, OPTIONS, ProgramSpace, make_collected_space
from solution.collecting.records import Destination, write_graph
from solution.collecting.report import show_finished
from solution.collecting.session import Bar, Finished, check_names
from solution.collecting.space import draw_new, name_config
from solution.collecting.target import list_names, parse_target
from solution.collecting.timing import SCHEMA
from solution.programs.hlo.messages import read_records
from solution.programs.program import Program, name_program
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.progress import bars
from tests.conftest import REPOSITORY, FastSlow, assert_refused, assert_said
from tests.made import modules
from tests.processes import FASTSLOW

SMALL = ("--configs", "9", "--keep-flat", "--seconds", "200", "--minutes")
Opening = Callable[..., ProgramCollection]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collected")


@pytest.mark.parametrize(
    ("kind", "folder"), [("layout", "layout/xla/random"), ("tile", "tile/xla")]
)
def test_a_collection_writes_files_like_the_competitions(
    kind: str, folder: str, out: Path, ragged_file: Path, fastslow: FastSlow, tmp_path: Path
) -> None:
    done = FASTSLOW.run("collect", kind, ragged_file, "--out", out, *SMALL, "3", timeout=900)
    assert "Repeat tau" in assert_said(done)
    npz, record = (out / k / folder / f"train/ragged.{k}" for k in ("npz", "pb"))
    assert_said(fastslow("check", out / "npz" / kind))
    assert_said(fastslow("module", record, "--to", tmp_path / "again"))
    copy = tmp_path / "again" / "npz" / folder / "train/ragged.npz"
    assert copy.read_bytes() == npz.read_bytes()
    check_log(out / "log" / folder / "train/ragged", npz, record)
    assert (out / "report.png").exists() or fastslow("collect", "report", out).returncode == 0


def check_log(log: Path, npz: Path, record: Path) -> None:
    """Check that a label is the larger of both halves' smallest times; failures have none."""
    candidates = pl.read_parquet(log / CANDIDATE_FILE)
    repeats = pl.read_parquet(log / REPEAT_FILE)
    clock = json.loads((log / STATE).read_text())["clock"]
    halves = repeats.group_by("config", "half").agg(pl.col(f"{clock}_ns").min())
    smallest = dict(halves.group_by("config").agg(pl.col(f"{clock}_ns").max()).iter_rows())
    sound = [row for row in candidates.iter_rows(named=True) if row["status"] == "sound"]
    with np.load(npz) as arrays:
        assert arrays["config_runtime"].tolist() == [smallest[row["config"]] for row in sound]
    runs = read_records(record)[0].runs
    assert [run.error for run in runs] == [
        row["status"] != "sound" for row in candidates.iter_rows(named=True)
    ]
    assert candidates["config"].is_unique().all()


@pytest.mark.parametrize("kind", [LAYOUTS, OPTIONS])
def test_a_stopped_collection_draws_the_same_in_the_same_order(
    kind: str, tmp_path: Path, dense: Program, workers: Workers
) -> None:
    space = make_collected_space(dense, kind)

    def draw(name: str, *stops: int) -> list[tuple[str, bytes]]:
        for stop in stops:
            destination = Destination(tmp_path / name, "layout:xla:random", "train")
            made = ProgramCollection(dense, space, destination, Settings(configs=12), workers)

            def stop_there(_: str, journal: Journal = made.journal, most: int = stop) -> None:
                if len(journal.candidates) >= most:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                made.run(stop_there)
        return made.journal.candidates.select("config", "values").rows()

    assert draw("whole", 6) == draw("stopped", 1, 3, 6)


def test_what_is_compiled_when_the_time_ends_still_gets_a_label(
    tmp_path: Path, dense: Program, workers: Workers
) -> None:
    """A label needs a pass in each half, and there is time for none."""
    space = make_collected_space(dense, LAYOUTS)
    journal = Journal(tmp_path, {})
    labels = workers.start(dense, space, journal, 0)
    labels.open(print, 4)
    labels.label(labels.draw(3, 0))
    labels.finish(0.0, print)
    assert labels.summarise().configs and journal.next_turn == 2
    assert set(labels.summarise().configs) == set(journal.sound()["config"])


def test_a_collection_without_time_says_how_little_it_has_and_is_resumed(
    tmp_path: Path, dense: Program, workers: Workers
) -> None:
    space = make_collected_space(dense, LAYOUTS)
    destination = Destination(tmp_path, "layout:xla:random", "train")
    made = ProgramCollection(dense, space, destination, Settings(seconds=0), workers)
    state = made.run(print)
    assert (state["configs"], state["left_out"]) == (1, "only 1 configuration")
    assert state["cut"] and not state["finished"] and "npz" not in state


def test_a_failing_program_does_not_hide_that_another_ran_out_of_time(
    tmp_path: Path, ragged_file: Path, fastslow: FastSlow
) -> None:
    other = tmp_path / "sums.py"
    other.write_text("def program(x):\n    return x[0] + x[1]\narguments = ((1.0, 2.0),)\n")
    unread = tmp_path / "unread.py"
    unread.write_text("def program(x):\n")
    files = unread, ragged_file, other
    done = fastslow("collect", "tile", *files, "--out", tmp_path, "--minutes", "0.1")
    said = assert_refused(done)
    assert "matrix product" in said and "unread.py" in said and "IndentationError" in said
    assert "ragged: the time was over" in " ".join(done.stdout.split())


def test_arguments_are_for_one_file_even_if_another_cannot_be_read(
    tmp_path: Path, ragged_file: Path, fastslow: FastSlow
) -> None:
    (tmp_path / "unread.py").write_text("def program(x):\n")
    np.savez(tmp_path / "given.npz", x=np.zeros(1))
    words = ("--out", tmp_path, "--arguments", tmp_path / "given.npz")
    said = assert_refused(fastslow("collect", "tile", tmp_path / "unread.py", *words))
    assert "unread.py" in said and "IndentationError" in said
    both = ("collect", "tile", tmp_path / "unread.py", ragged_file, *words)
    assert "found 2" in assert_refused(fastslow(*both))


def test_a_collection_of_another_program_is_not_resumed(
    dense: Program, ragged: Program, workers: Workers, tmp_path: Path
) -> None:
    destination = Destination(tmp_path, "layout:xla:random", "train")

    def open_collection(program: Program) -> None:
        space = make_collected_space(program, LAYOUTS)
        ProgramCollection(program, space, destination, Settings(), workers)

    open_collection(dense)
    open_collection(dense)
    with pytest.raises(InputError, match="its program.*numbers without.*--replace"):
        open_collection(replace(ragged, name=dense.name))


def test_all_files_of_a_program_have_the_name_of_its_graph(tmp_path: Path) -> None:
    """Two programs with the same name are refused."""
    destination = Destination(tmp_path, "layout:xla:random", "train")
    for stem, expected in (
        ("a b", "a_b"), ("a_b", "a_b"), ("..a(1)", "a_1_"), ("é" * 100, "é" * 75), ("(", "_"),
    ):  # fmt: skip
        name = name_program(Path(f"{stem}.py"))
        program = Program(name, modules.make_module(), [])
        space = make_collected_space(program, OPTIONS)
        record, npz = write_graph(program, space, [(space.default, 100)], destination)
        assert (name, record.stem, npz.stem) == (expected,) * 3
    assert name_program(Path("a b.hlo.pb"), 2) == "a_b_2"
    with pytest.raises(InputError, match="found.*a_b"):
        check_names([name_program(Path(name)) for name in ("a b.py", "a_b.py")])


@pytest.fixture
def open_flat(dense: Program, workers: Workers, tmp_path: Path) -> Opening:
    """Opens a finished collection of eight layouts that take the same time."""
    space = make_collected_space(dense, LAYOUTS)
    destination = Destination(tmp_path / "out", "layout:xla:random", "train")

    def open_collection(settings: Settings, other: ProgramSpace = space) -> ProgramCollection:
        return ProgramCollection(dense, other, destination, settings, workers)

    journal = open_collection(Settings()).journal
    rows = []
    for config in draw_new(space, np.random.default_rng(0), 8, set()):
        name = name_config(config)
        journal.add_candidate(name, config, SOUND, "", 0.1)
        rows += [(name, turn % 2, turn, 100 + turn, 100 + turn) for turn in range(4)]
    journal.add_repeats([pl.DataFrame(rows, SCHEMA, orient="row")])
    journal.finish({"asked": 8, "clock": "cpu", "left_out": "flat"}, is_final=True)
    return open_collection


def test_a_flat_graph_is_written_from_its_log_and_removed_with_it(
    open_flat: Opening, tmp_path: Path
) -> None:
    files = [
        tmp_path / f"out/{kind}/layout/xla/random/train/dense.{kind}" for kind in ("pb", "npz")
    ]
    assert "npz" not in open_flat(Settings(8)).run(print)
    state = open_flat(Settings(8, keep_flat=True)).run(print)
    assert state["npz"] == "npz/layout/xla/random/train/dense.npz"
    assert files[0].exists() and open_flat(Settings(8)).journal.state == state
    with np.load(files[1]) as arrays:
        assert arrays["config_runtime"].tolist() == [101] * 8  # the slower half's
    for path in files:  # a deleted file is written again from the log
        whole = path.read_bytes()
        path.unlink()
        assert open_flat(Settings(8)).run(print) == state and path.read_bytes() == whole
    open_flat(Settings(8, replace=True))
    assert not any(path.exists() for path in files)


def test_more_configurations_than_before_are_measured(open_flat: Opening) -> None:
    assert open_flat(Settings(8, seconds=3)).run(print)["asked"] == 8
    state = open_flat(Settings(9, seconds=3)).run(print)
    assert (state["asked"], state["passes"] > 4) == (9, True)


def test_a_collection_that_ran_out_of_time_resumes_with_more_time(open_flat: Opening) -> None:
    journal = open_flat(Settings()).journal
    journal.finish({**journal.state, "asked": 9, "cut": True, "allowed": 2.0}, is_final=True)
    assert open_flat(Settings(9, seconds=2)).run(print)["allowed"] == 2  # the same command
    for seconds in (4, 8, 16, 32, 64):  # a busy machine needs more than the first
        state = open_flat(Settings(9, seconds=seconds)).run(print)
        assert (state["allowed"], state["failure"]) == (seconds, "")
        if state["configs"] == 9:
            return
    raise AssertionError("not even a minute was enough")


def test_layouts_are_not_resumed_for_options(open_flat: Opening, dense: Program) -> None:
    with pytest.raises(InputError, match="not options"):
        open_flat(Settings(), make_collected_space(dense, OPTIONS))
    assert open_flat(Settings()).journal.is_finished


def test_a_collection_of_an_earlier_version_is_not_resumed(open_flat: Opening) -> None:
    journal = open_flat(Settings()).journal
    del journal.state["identity"]["journal version"]
    write_sealed(journal.state, journal.folder / STATE)
    with pytest.raises(InputError, match=r"journal version is none, not 2.*--replace"):
        open_flat(Settings())
    assert open_flat(Settings(replace=True)).journal.candidates.is_empty()


def test_a_graph_that_is_left_out_for_few_configurations_says_how_many_it_needs() -> None:
    state = {
        "configs": 6, "statuses": {SOUND: 6}, "spread": 2.0, "seconds": 1.0, "clock": "cpu",
        "repeat_tau": 0.5, "left_out": "only 6 configurations",
    }  # fmt: skip
    (cell,) = show_finished("made", [Finished("made", state)]).columns[-1].cells
    assert "only 6" in str(cell) and str(MIN_CONFIGS) in str(cell)


def test_without_jax_the_message_names_the_extra(tmp_path: Path, dense_file: Path) -> None:
    """The parent process does not import jax, and runs without it."""
    code = """
import sys, importlib.metadata as metadata
real = metadata.version
def version(name):
    if name.startswith('jax'): raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version, sys.modules['jax'] = version, None
from solution.cli import main
main()
"""
    words = [sys.executable, "-c", code, "collect", "layout", dense_file]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert "-c constraints.txt" in assert_refused(result)


CHECK = """
from solution.collecting.target import parse_target
from solution.system.errors import InputError
try:
    parse_target("tpu:v3").check()
except InputError as error:
    print(error)
"""


def test_the_bar_of_a_tpu_counts_configurations_and_is_full_at_a_good_end(tmp_path: Path) -> None:
    progress = bars()
    bar = Bar(progress, "made", Settings(configs=9, target=parse_target("tpu:v3")))
    (task,) = progress.tasks
    bar("compiling the program as it is")
    assert (task.completed, task.total) == (0, 9)
    bar.end(Finished("made", {}, "made: refused"))
    assert task.completed == 0 and not task.finished
    journal = Journal(tmp_path / "log", {})
    bar.follow(journal)
    for number, status in enumerate((SOUND, SOUND, REFUSED)):
        journal.add_candidate(str(number), np.zeros(1, np.int32), status, "", 0.0)
    bar("compiled 3")
    assert (task.completed, task.total) == (2, 9)
    bar.end(Finished("made", {"cut": True}))
    assert not task.finished
    bar.end(Finished("made", {"cut": False}))  # the program has no more configurations
    assert task.finished and task.completed == 2


@pytest.mark.parametrize("name", list_names())
def test_each_target_is_found_by_its_name(name: str) -> None:
    target = parse_target(name)
    assert target.name == name
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize("name", ["tpu", "tpu:", "tpu:v9", "gpu", "", "v3", "tpu:V3"])
def test_a_wrong_name_lists_the_targets(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(name)
    assert all(known in str(caught.value) for known in list_names())


def test_without_the_extra_the_message_names_it() -> None:
    message = check_target(sys.executable, "-S")  # installed packages are invisible
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        assert ".[tpu]" in message
    assert "tpu:v3" in message and len(message.splitlines()) == 1


@pytest.mark.skipif(shutil.which("setarch") is None, reason="setarch (util-linux) is not here")
def test_on_another_processor_the_message_names_it() -> None:
    message = check_target("setarch", "i686", sys.executable, "-S")
    assert "i686" in message and "x86-64" in message


def check_target(*command: str) -> str:
    """What `check` of a target says in a process that these words begin."""
    said = subprocess.check_output([*command, "-c", CHECK], cwd=REPOSITORY, text=True)
    return said.strip()
