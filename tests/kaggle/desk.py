"""What tests of the submit commands share: a run that can be sent, and a real command line.

`fastslow` and the kaggle CLI that it calls are the installed ones, unmodified, each in a process of
its own that is forked from a server which has imported its libraries: see tests/processes.py.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import psutil

from solution.domain import predictions
from solution.domain.collection import COLLECTIONS
from solution.domain.predictions import SCHEMA
from solution.runs.folder import Run
from solution.system.files import write_sealed
from submissions.ledger import Ledger, read_ledger
from tests.fork_server import at_start
from tests.kaggle.server import KaggleServer
from tests.kaggle.world import World
from tests.processes import FASTSLOW, KAGGLE, Program

SECRET = "5ecret-0123456789-of-nobody"
USER = "tester"
RECIPE = "[members]\none = 1.0\n"
CONFIGS = {"layout": 4, "tile": 6}
UNSET = "unset"
LABELLED = 3  # graphs with labels in each collection


def make_run(folder: Path, seed: int = 0) -> Run:
    """A run of one experiment with as many test graphs as the competition has."""
    random = np.random.default_rng(seed)
    graphs, test, labelled, labels = [], [], [], []
    for collection in COLLECTIONS:
        name, configs = collection.name, CONFIGS[collection.kind]
        for number in range(collection.test_rows + LABELLED):
            is_test = number < collection.test_rows
            graph = f"{'test' if is_test else 'train'}{number}"
            split = "test" if is_test else "train"
            graphs.append((name, graph, graph, split, not is_test, configs))
            for config, score in enumerate(random.random(configs)):
                (test if is_test else labelled).append((name, graph, config, 0, 0, score))
                if not is_test:
                    labels.append((name, graph, config, 1 + score + random.random()))
    run = Run(folder)
    write_sealed({"settings": {"experiments": {"one": {}}, "data": "da7a"}}, folder / "run.json")
    columns = ["collection", "graph", "group", "split", "labelled", "configs"]
    pl.DataFrame(graphs, columns, orient="row").write_parquet(run.graphs)
    columns = ["collection", "graph", "config", "runtime"]
    frame = pl.DataFrame(labels, columns, orient="row").cast({"config": pl.Int32()})
    frame.write_parquet(run.labels)
    for part, rows in (("test", test), ("out_of_fold", labelled)):
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        predictions.write(frame, run.predictions("one", part))
    (folder / "mine.toml").write_text(RECIPE, encoding="utf-8")
    return run


def find_group(number: int) -> set[int]:
    """The processes of a group."""
    found = set()
    for process in psutil.pids():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            found |= {process} if os.getpgid(process) == number else set()
    return found


@dataclass(frozen=True)
class Done:
    """What a user saw."""

    code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """Everything, with single spaces."""
        return " ".join(f"{self.stdout} {self.stderr}".split())


def check(done: Done, code: int = 0, *words: str) -> Done:
    """Assert the exit code, and that these words were printed."""
    assert done.code == code, done.words
    assert not [text for text in words if text not in done.words], done.words
    return done


@dataclass
class Running:
    """A command that was begun."""

    program: Program

    @property
    def number(self) -> int:
        """Of the process, and of the process group that it leads."""
        return self.program.pid

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, so long."""
        with suppress(subprocess.TimeoutExpired):
            self.program.wait(seconds)
        return self.program.returncode is not None

    def finish(self) -> Done:
        """Wait for its end; the exit code of a kill is negative."""
        printed = self.program.communicate(600)
        return Done(self.program.wait(), *printed)


@dataclass
class Desk:
    """A folder with everything that a submit reads and writes, and a stand-in for Kaggle."""

    folder: Path
    server: KaggleServer
    more: dict[str, str] = field(default_factory=dict)

    @property
    def world(self) -> World:
        return self.server.world

    @property
    def ledger(self) -> Ledger:
        return read_ledger(self.ledger_path)

    @property
    def ledger_path(self) -> Path:
        return self.folder / "submissions" / "ledger.csv"

    def add_earlier(self) -> None:
        """A submission by hand, or else Kaggle's counts would be zeros, which prove nothing."""
        row = {"ref": 1, "description": "by hand", "date": "2026-01-01T00:00:00Z"}
        self.world.submissions.append({**row, "status": "COMPLETE", "publicScore": "0.5"})

    def write_ledger(self, text: str) -> Path:
        self.ledger_path.parent.mkdir(exist_ok=True)
        self.ledger_path.write_text(text, encoding="utf-8")
        return self.ledger_path

    @property
    def run(self) -> Run:
        return Run(self.folder / "run")

    def environment(self) -> dict[str, str]:
        """The user's environment, every connection led to the stand-in; short waits.

        But not so short limits: a busy machine keeps a call waiting too, and that is no fault.
        """
        proxy = f"http://127.0.0.1:{self.server.port}"
        for name in ("home", "tmp", "submissions"):
            (self.folder / name).mkdir(exist_ok=True)
        kept = ("PATH", "LANG", "FASTSLOW_KAGGLE")
        environment = {
            "FASTSLOW_KAGGLE": str(KAGGLE.stand_in),
            **{name: os.environ[name] for name in kept if name in os.environ},
            **at_start(os.environ),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "KAGGLE_USERNAME": USER,
            "KAGGLE_KEY": SECRET,
            "http_proxy": proxy,
            "https_proxy": proxy,  # nothing can reach the real site
            "no_proxy": "",
            "NO_PROXY": "",
            "COLUMNS": "80",
            "LANGUAGE": "C",  # or the CLI looks for a translation of each of its 400 words
            "FASTSLOW_SUBMISSIONS": str(self.folder / "submissions"),
            "FASTSLOW_CALL_SECONDS": "50",
            "FASTSLOW_UPLOAD_SECONDS": "50",
            "FASTSLOW_TRIES": "2",
            "FASTSLOW_WAIT_SECONDS": "0.05",
            "FASTSLOW_QUIET_SECONDS": "0.5",
            "FASTSLOW_POLL_SECONDS": "0.1",
            "FASTSLOW_SCORE_SECONDS": "60",
            "FASTSLOW_LOCK_SECONDS": "60",
            **self.more,
        }
        return {name: value for name, value in environment.items() if value != UNSET}

    def start(self, *arguments: str) -> "Running":
        """Begin a command, in a process group of its own."""
        return Running(FASTSLOW.start(*arguments, cwd=self.folder, env=self.environment(), group=0))

    def call(self, *arguments: str) -> Done:
        """Run a command to its end."""
        return self.start(*arguments).finish()

    def start_until(self, call: str, times: int = 1) -> "Running":
        """Begin a submit of the run, and wait until it has made a call so often."""
        running = self.start(*self.submit_arguments())
        while self.world.count(call) < times:
            assert not running.ends_within(0.02)
        return running

    def submit_arguments(self, *options: str) -> tuple[str, ...]:
        """The arguments of `fastslow` that send the user's run."""
        return ("submit", "run/mine.toml", "--run", "run", "--allow-dirty", *options)

    def submit(self, *options: str) -> Done:
        """`fastslow submit` of the user's run."""
        return self.call(*self.submit_arguments(*options))


@contextmanager
def open_desk(folder: Path, run: Path) -> Iterator[Desk]:
    """A user's folder with a copy of the run, and a stand-in for Kaggle."""
    shutil.copytree(run, folder / "run")
    server = KaggleServer()
    try:
        yield Desk(folder, server)
    finally:
        server.stop()


def assert_made_once(desk: Desk) -> None:
    """Kaggle has the file once, byte for byte, and the ledger says exactly that."""
    (made,) = (row for row in desk.world.submissions if "token" in row)  # none by hand
    meant = desk.run.submission.read_bytes()
    assert desk.world.uploads[made["token"]] == meant
    lines = desk.ledger.lines
    (line,) = (line for line in lines if line["ref"])
    assert line["state"] == "scored"
    assert line["ref"] == str(made["ref"])
    assert f"key={line['key']} " in made["description"]
    assert (line["public"], line["private"]) == desk.world.scores
    rest = [other["state"] for other in lines if other is not line]
    assert set(rest) <= {"failed"}
    kept = desk.folder / "submissions" / "sent" / line["key"] / "submission.csv"
    assert kept.read_bytes() == meant
