"""A preparation that is killed, crowded out or left without room loses nothing that is finished."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from solution.data.folders import find_files
from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from tests.conftest import remount
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.processes import FASTSLOW, Program, find_growing, run_cold, wait_until
from tests.store.test_store import snapshot

NUM_GRAPHS = 24
CONFIGS = 300
PREPARE = ("prepare", "data", "--hops", "1")


def write_data(folder: Path) -> None:
    for seed in range(NUM_GRAPHS // 2):
        split = "test" if seed % 5 == 0 else "train"
        program = make_layout_graph(seed, CONFIGS, name=f"program_{seed}", labelled=seed % 5 != 0)
        write_graph(program, folder / "data", split)
        write_graph(make_tile_graph(seed, CONFIGS, name=f"kernel_{seed}"), folder / "data")
    text = "ID,TopConfigs\ntile:xla:kernel_0,0;1;2\n"
    (folder / "data" / "sample_submission.csv").write_text(text)


def prepare(folder: Path, *more: str | Path) -> subprocess.CompletedProcess[str]:
    return FASTSLOW.run(*PREPARE, *more, cwd=folder)


def start(store: Path, workers: str = "1") -> Program:
    """Begin to prepare the data beside the store."""
    words = (*PREPARE, "--out", store.name, "--workers", workers)
    return FASTSLOW.start(*words, cwd=store.parent)


def prepare_again(store: Path, workers: str = "1") -> None:
    """The same command ends with the bytes of an undisturbed preparation."""
    done = prepare(store.parent, "--out", store, "--workers", workers)
    assert done.returncode == 0, done.stderr
    assert snapshot(store) == snapshot(store.with_name("whole"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and in `whole` the store of an undisturbed preparation."""
    folder = tmp_path_factory.mktemp("work")
    write_data(folder)
    done = run_cold(*PREPARE, "--out", "whole", cwd=folder)  # with another hash seed
    assert done.returncode == 0, done.stderr
    assert f"{NUM_GRAPHS} graphs" in done.stdout
    return folder


def count_graphs(store: Path) -> int:
    return sum(path.name[0] != "." for path in find_growing(store, "*.safetensors"))


def kill_with_children(process: Program) -> None:
    """Kill the process alone, as one does by hand; its workers must end by themselves."""
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


@pytest.mark.parametrize(("workers", "kills"), [("1", 4), ("2", 2)])
def test_a_killed_preparation_ends_in_the_same_bytes(workers: str, kills: int, work: Path) -> None:
    store, generator = work / f"killed-{workers}", random.Random(workers)
    times: dict[Path, int] = {}
    for kill in range(kills):
        target = NUM_GRAPHS * kill // kills
        process = start(store, workers)
        if wait_until(lambda target=target: count_graphs(store) >= target, process):  # type: ignore[misc]
            time.sleep(generator.random() * 0.02)
            kill_with_children(process)
        assert count_graphs(store) >= target
        assert (store / "graphs.parquet").exists() <= (count_graphs(store) == NUM_GRAPHS)
        found = {path: path.stat().st_mtime_ns for path in store.rglob("[!.]*.safetensors")}
        assert found.items() >= times.items()  # what is finished is not prepared again
        times = found
    prepare_again(store, workers)


def test_an_unfinished_store_says_so(work: Path) -> None:
    store = work / "unfinished"
    process = start(store)
    assert wait_until(lambda: count_graphs(store) >= 1, process)
    kill_with_children(process)
    check = FASTSLOW.run("check", store)
    assert check.returncode == 2 and "its preparation" in check.stderr
    with pytest.raises(InputError, match="`fastslow prepare`"):
        Store.open(store)


def test_of_two_preparations_at_once_one_is_refused(work: Path) -> None:
    store = work / "two"
    process = start(store)
    assert wait_until(lambda: count_graphs(store) >= 3, process)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        second = prepare(work, "--out", store, "--workers", "1")
        replacing = prepare(work, "--out", store, "--replace")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    for result in (second, replacing):
        assert result.returncode == 2 and "another process" in result.stderr
    assert process.wait() == 0
    assert snapshot(store) == snapshot(work / "whole")


@dataclass(frozen=True)
class DeadlyPreparation(Preparation):
    """Its process is killed at the eleventh program, as the system does when memory runs out."""

    def __call__(self, graph: Graph) -> Graph:
        if graph.name == "program_11":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(graph)


def test_a_killed_worker_is_said_and_nothing_is_lost(work: Path) -> None:
    files, store = find_files(work / "data"), work / "worker"
    with pytest.raises(InputError, match="memory.*--workers"):
        prepare_store(files, store, DeadlyPreparation(), workers=2)
    assert count_graphs(store) < NUM_GRAPHS and not (store / "graphs.parquet").exists()
    prepare_again(store)


def assert_no_room(result: subprocess.CompletedProcess[str], words: str, store: Path) -> None:
    assert result.returncode == 2, result.stderr
    message = " ".join(result.stderr.split())
    assert words in message and "command again" in message
    assert "Traceback" not in result.stderr
    assert not list(store.rglob(".partial-*")) and not (store / "graphs.parquet").exists()


def test_files_that_may_not_be_large_enough_are_said(work: Path) -> None:
    store = work / "limited"
    sizes = [path.stat().st_size for path in (work / "whole").rglob("*.safetensors")]
    limit = sorted(sizes)[NUM_GRAPHS // 2]

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = (*PREPARE, "--out", store, "--workers", "2")
    assert_no_room(run_cold(*words, cwd=work, preexec_fn=restrict), "File too large", store)
    prepare_again(store, "2")


@pytest.mark.parametrize("room", [4096, 100_000, -1])
def test_a_full_disk_is_said_and_the_command_goes_on(room: int, disk: Path, work: Path) -> None:
    """With room for the record, some graphs, all but the index."""
    wanted = snapshot(work / "whole")
    if room < 0:
        pages = [-(-len(content) // 4096) for content in wanted.values()]
        room = 4096 * (sum(pages) - 1)
    (disk / "filler").write_bytes(bytes((1 << 20) - room))
    store = disk / "store"
    assert_no_room(prepare(work, "--out", store, "--workers", "1"), "No space left", store)
    (disk / "filler").unlink()
    assert prepare(work, "--out", store, "--workers", "1").returncode == 0
    assert snapshot(store) == wanted
    assert Store.open(store).find_defects() == []


@pytest.mark.slow
def test_the_folder_is_removed_under_it(work: Path) -> None:
    store = work / "removed"
    program = start(store)
    assert wait_until(lambda: count_graphs(store) >= 5, program)
    shutil.rmtree(store, ignore_errors=True)
    code, errors = program.wait(60), program.communicate()[1]
    assert code in (0, 2) and "Traceback" not in errors, errors
    shutil.rmtree(store, ignore_errors=True)
    prepare_again(store)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["check", "prepare", "run", "unfinished", "new"])
def test_a_mount_that_is_read_only(what: str, disk: Path, work: Path) -> None:
    remount(disk, "size=8m")
    store = shutil.copytree(work / "whole", disk / "store")
    if what == "unfinished":
        (store / "graphs.parquet").unlink()
    remount(disk, "ro")
    run = ("run", store, "--experiment", "nothing_001", "--workers", "1", "--run", work / "run")
    words = {"check": ("check", store), "run": run}
    out = disk / "new" if what == "new" else store
    done = FASTSLOW.run(*words.get(what, (*PREPARE, "--out", out)), cwd=work)
    is_refused = what in ("unfinished", "new")
    assert done.returncode == (2 if is_refused else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert not is_refused or "Read-only file system" in " ".join(done.stderr.split())
