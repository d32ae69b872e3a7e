"""Rehearse the whole competition on synthetic data: run every stage and measure it.

    make rehearsal                     a fiftieth of the graphs
    make rehearsal SHARE=1 KILLS=0     all of them
    python -m benchmarks.rehearsal FOLDER --share 0.001 --configs 0.01    some minutes
    python -m benchmarks.rehearsal FOLDER --share 1 --stand-ins --ranked-by RUN
                                       everything except training: members score at random, and
                                       the members of a smaller rehearsal's RUN rank all test graphs

Graphs, nodes, configurations and files have real numbers and sizes (benchmarks/corpus.py);
runtimes are a rule of layouts and tiles with noise, so that scores mean something. Each stage is
a user's command, in separate processes. Then everything is repeated, killed at random moments, and
must end in the same bytes. An interrupted rehearsal resumes after its last stage; another share is
another folder.

Core-seconds and memory are of all processes of a stage together; memory is proportional set size,
so that a store that several processes map counts once.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import stand_in
from benchmarks.corpus import count_graphs, write_corpus
from benchmarks.peak import Peak
from ensembles import DEFAULT_RECIPE
from ensembles.recipe import find_recipe
from solution.domain.collection import LAYOUT, NAMES
from solution.experiments.base import find_experiment
from solution.system.files import remove, write_json
from solution.system.wording import spell
from solution.training.executors.local import count_slots
from solution.training.forecast import estimate_wall, forecast
from solution.training.opening import open_store
from solution.training.plan import make_plan

FASTSLOW = Path(sys.executable).parent / "fastslow"
SHARE, FOLDS, KILLS = 0.02, 5, 10
# Stages that are killed, and their shares of the kills.
KILLED = {"prepare": 0.3, "run": 0.4, "ensemble again": 0.2, "report": 0.1}
LEAST = 6  # training graphs per collection; fewer architectures cannot be divided into folds
SAMPLED_EACH = 0.5  # seconds between two samples of memory
RESULTS = "results.json"
NOTHING, STAND_INS = "nothing_001", ("stand_in_net.py", "stand_in_trees.py")
SAME = ("submission.csv", "*/out_of_fold/*.parquet", "*/test/*.parquet")


@dataclass(frozen=True)
class Measured:
    """The cost of a stage."""

    seconds: float
    core_seconds: float
    megabytes: float  # peak memory of all processes together
    disk: float  # megabytes of the files it wrote


@dataclass(frozen=True)
class Members:
    """The rankers of the rehearsal."""

    stand_ins: bool = False  # random members instead of a default run's
    ranked_by: Path | None = None  # a run whose members also rank the test graphs

    def list_experiments(self, folder: Path) -> list[Path]:
        """Return the stand-ins' files in the folder; none for a default run."""
        return [folder / name for name in STAND_INS if self.stand_ins]

    def write(self, folder: Path) -> None:
        """Write these files."""
        for path in self.list_experiments(folder):
            shutil.copyfile(stand_in.__file__, path)


def list_stages(place: Path, members: Members) -> dict[str, tuple[list[str], Path]]:
    """Return the commands in order, and the files that each writes."""
    data, store, run = (str(place / name) for name in ("data", "store", "run"))
    csv, ranked = str(place / "run" / "submission.csv"), place / "ranked.csv"
    files = members.list_experiments(place)
    own = [word for file in (NOTHING, *files) for word in ("--experiment", str(file)) if files]
    stages = {
        "check": (["check", data], place / "nothing"),
        "prepare": (["prepare", data, "--out", store], place / "store"),
        "run": (["run", store, "--run", run, *own], place / "run"),
        "ensemble again": (["ensemble", "--run", run], place / "nothing"),
        "report": (["report", "--run", run], place / "run" / "report.html"),
        "verify": (["verify", csv, "--run", run], place / "nothing"),
    }
    if members.ranked_by:
        tests = [str(folder) for folder in sorted((place / "data").glob("npz/**/test"))]
        words = ["rank", *tests, "--run", str(members.ranked_by), "--csv", str(ranked)]
        stages["rank"] = (words, ranked)
    return stages


def measure(words: Sequence[str], written: Path, log: Path) -> Measured:
    """Run a command to its end. Raises CalledProcessError with the end of its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with log.open("a") as said:
        process = subprocess.Popen([FASTSLOW, *words], stdout=said, stderr=said)
        with Peak(partial(_list_all, process.pid), _share_memory, SAMPLED_EACH) as peak:
            code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, words, log.read_text()[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # a server's workers are not in the time of waited-for children
    cores = max(waited_for, peak.core_seconds)
    return Measured(time.monotonic() - start, cores, peak.megabytes, count_megabytes(written))


def _share_memory(process: psutil.Process) -> int:
    """Return the bytes of a process; memory shared by several is divided among them."""
    return int(process.memory_full_info().pss)


def _list_all(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants; none if it has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def count_megabytes(path: Path) -> float:
    """Return megabytes of a file, or of all files in a folder; 0 if it does not exist."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


def foretell(store: Path, files: Sequence[Path]) -> float:
    """Return the estimate in seconds, by `fastslow run --estimate`, of the training stage."""
    default = find_recipe(DEFAULT_RECIPE).experiments()
    names = [NOTHING, *map(str, files)] if files else default
    experiments = [find_experiment(name) for name in names]
    begin = time.monotonic()
    with open_store(store, store, experiments) as opened:  # reads all of it, as a run does
        startup = time.monotonic() - begin
        found = forecast(experiments, make_plan(opened, "architecture", FOLDS), count_slots())
    return estimate_wall(found, count_slots(), startup)


def rehearse_kills(
    place: Path, calm: Path, members: Members, seconds: dict[str, float], kills: int
) -> str:
    """Repeat everything with `kills` kills; return the differences from `calm`, in words."""
    generator, log = random.Random(kills), place / "log.txt"
    stages = list_stages(place, members)
    for name, share in KILLED.items():
        words, _ = stages[name]
        times = round(kills * share)
        for _ in range(times):
            _kill_after(words, generator.uniform(0.1, 1) * seconds[name] / times, log)
        measure(words, place / "nothing", log)
    expected, found = read_results(calm / "run"), read_results(place / "run")
    wrong = [name for name, content in expected.items() if found.get(name) != content]
    return f"other bytes: {', '.join(wrong)}" if wrong else f"{len(expected)} files, the same bytes"


def read_results(run: Path) -> dict[str, bytes]:
    """Return by name the results that must be the same in every run."""
    files = [file for pattern in SAME for file in sorted(run.glob(pattern))]
    return {file.relative_to(run).as_posix(): file.read_bytes() for file in files}


def _kill_after(words: Sequence[str], seconds: float, log: Path) -> None:
    """Start a command, and kill it and its descendants after `seconds`, unless it has ended."""
    with log.open("a") as said:
        process = subprocess.Popen(
            [FASTSLOW, *words], stdout=said, stderr=said, start_new_session=True
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Results:
    """The measured stages, kept in a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        self.known = json.loads(self._path.read_text()) if self._path.is_file() else {}

    def keep(self, name: str, value: object) -> None:
        self.known[name] = value
        write_json(self.known, self._path)


def rehearse(folder: Path, share: float, configs: float, kills: int, members: Members) -> Results:
    """Run every missing stage."""
    folder.mkdir(parents=True, exist_ok=True)
    members.write(folder)
    results, log = Results(folder), folder / "log.txt"
    for name in NAMES:
        if f"data {name}" not in results.known:
            write_corpus(folder / "data", name, share, configs, least=LEAST)
            results.keep(f"data {name}", True)
    for name, (words, written) in list_stages(folder, members).items():
        if name == "run" and "estimate" not in results.known:
            files = members.list_experiments(folder)
            results.keep("estimate", foretell(folder / "store", files))
        if name not in results.known:
            print(f"{name}: fastslow {' '.join(words)}", flush=True)
            remove(written)  # of an interrupted stage
            results.keep(name, asdict(measure(words, written, log)))
    if kills and "kills" not in results.known:
        again = folder / "killed"
        again.mkdir(exist_ok=True)
        members.write(again)
        with suppress(FileExistsError):
            (again / "data").symlink_to((folder / "data").resolve())
        seconds = {name: results.known[name]["seconds"] for name in KILLED}
        results.keep("kills", rehearse_kills(again, folder, members, seconds, kills))
    return results


def find_factor(share: float) -> float:
    """Return the ratio of the competition's layout graphs to these; they dominate the time."""
    whole, here = (
        sum(sum(count_graphs(name, part, LEAST).values()) for name in LAYOUT)
        for part in (1.0, share)
    )
    return whole / here


def show(results: Results, folder: Path, share: float, configs: float, members: Members) -> Table:
    """Print a row per stage; the last column extrapolates to the whole competition by its
    graphs."""
    files, factor = count_megabytes(folder / "data"), find_factor(share)
    table = Table(
        title=f"{share:g} of the competition's graphs, {configs:g} of their configurations",
        caption=f"{files:,.0f} MB of files. The whole: seconds, {factor:,.0f} times, as there are "
        "so many layout graphs.",
    )
    for name in ("stage", "seconds", "core-seconds", "memory, MB", "disk, MB", "the whole"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for name in list_stages(folder, members):
        own = Measured(**results.known[name])
        numbers = (own.seconds, own.core_seconds, own.megabytes, own.disk)
        table.add_row(name, *(f"{value:,.0f}" for value in numbers), spell(own.seconds * factor))
    trained = results.known["run"]["seconds"]
    estimate = results.known["estimate"]
    difference = f"{estimate / trained - 1:+.0%}"
    table.add_row("run, as estimated", f"{estimate:,.0f}", "", "", "", difference)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=SHARE, help="Of the graphs.")
    parser.add_argument("--configs", type=float, default=1.0, help="Of their configurations.")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--stand-ins", action="store_true", help="Members that learn nothing.")
    parser.add_argument("--ranked-by", type=Path, help="A run that ranks the test graphs as well.")
    given = parser.parse_args()
    folder = given.folder / f"{given.share:g}-{given.configs:g}"
    members = Members(given.stand_ins, given.ranked_by and given.ranked_by.resolve())
    results = rehearse(folder, given.share, given.configs, given.kills, members)
    Console(width=110).print(show(results, folder, given.share, given.configs, members))
    if "kills" in results.known:
        print(f"Done once more, killed on the way: {results.known['kills']}.")


if __name__ == "__main__":
    main()
