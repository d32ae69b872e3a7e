"""Run a notebook in a Kaggle kernel or on a laptop: find its inputs, record its outputs.

A kernel has a read-only tree of inputs, whose mount points differ by year, and a working folder
that is kept as its output. On a laptop a notebook writes to runs/NOTEBOOK, and runs/ is searched
for the outputs of other notebooks, including those downloaded (pulled) from Kaggle.
"""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType

from solution.data.folders import SAMPLE, find_files, find_roots
from solution.runs.folder import RECORD, Run, find_runs, find_stores
from solution.serving.archive import ZIP, is_archive
from solution.serving.record import RECORD as BUNDLE_RECORD
from solution.sessions.record import (
    KERNEL_RECORD,
    SessionRecord,
    State,
    read_session_record,
    write_session_record,
)
from solution.store.store import RECORD as STORE_RECORD
from solution.store.store import is_store
from solution.system.accelerators import describe_accelerators
from solution.system.commit import read_commit
from solution.system.errors import InputError
from solution.system.files import make_folder
from solution.system.scratch import find_base
from solution.system.terminal import say

PROJECT = Path(__file__).parents[2]
RUN = "run"  # subfolder of the output with the notebook's run
LEAST_SECONDS = 0.5  # a block with a time limit gets at least this long
PACKAGED = str(Path("solution", "serving"))  # end of the path of this project's bundle
# the project's folder; the current folder if only the package is installed
CHECKOUT = PROJECT if (PROJECT / "pyproject.toml").is_file() else Path()


class OutOfTimeError(BaseException):
    """Raised when the session must end. Not an Exception, because users' code may catch those."""


@dataclass(frozen=True)
class Session:
    """The folders of a notebook's inputs and outputs, and when it began."""

    notebook: str
    push: str  # key of the push (upload to Kaggle) that started the notebook; empty if a person did
    inputs: Path
    output: Path
    scratch: Path  # folder of files that need not be kept, such as a store
    on_kaggle: bool
    begun: float  # when the notebook began, by time.monotonic()

    @classmethod
    def begin(cls, notebook: str, push: str = "") -> "Session":
        """Find the folders of this environment, and write the record of a running session."""
        on_kaggle = "KAGGLE_KERNEL_RUN_TYPE" in os.environ
        runs, stores = ((CHECKOUT / found).resolve() for found in (find_runs(), find_stores()))
        session = cls(
            notebook,
            push,
            inputs=find_inputs() if on_kaggle else runs,
            output=Path.cwd() if on_kaggle else runs / notebook,
            scratch=find_base() if on_kaggle else stores,
            on_kaggle=on_kaggle,
            begun=time.monotonic(),
        )
        make_folder(session.output)
        session.leave_record("running")
        machine = "a Kaggle kernel" if on_kaggle else "this computer"
        commit = read_commit() or "unknown"
        say(f"{notebook} on {machine}, code of commit {commit}; {describe_accelerators()}.")
        return session

    @property
    def run(self) -> Path:
        """The folder of the run that this notebook trains."""
        return self.output / RUN

    def find_data(self, *, prepared: bool = True) -> Path:
        """Return the data's folder: $FASTSLOW_DATA, else attached data, else (laptop) the sample.

        On a laptop, data/ of the checkout counts as attached. If `prepared`, a store is accepted as
        well as npz files.

        Raises InputError if a kernel has no data attached, or folders with different data.
        """
        if os.environ.get("FASTSLOW_DATA"):
            return Path(os.environ["FASTSLOW_DATA"])
        folder = self.inputs if self.on_kaggle else CHECKOUT / "data"
        found = find_attached_data(folder, prepared=prepared) if folder.is_dir() else None
        if found is not None:
            return found
        if self.on_kaggle:
            store, dataset = "", ""
            if prepared:
                store, dataset = " and no prepared store", ", or a dataset with a store"
            raise InputError(
                f"{self.inputs}: no npz files{store} are attached. Add the data of the competition "
                f"to the notebook's inputs{dataset}."
            )
        return SAMPLE

    def find_runs(self, notebooks: str = "*") -> list[Run]:
        """Return the runs of other notebooks among the inputs. `notebooks`: patterns of the
        notebooks' names, separated by commas."""
        if not self.inputs.is_dir():
            return []
        found = []
        for here, _, files in os.walk(self.inputs, followlinks=True):
            run = Path(here, RUN)
            if KERNEL_RECORD in files and (run / RECORD).is_file() and run.resolve() != self.run:
                name = read_session_record(Path(here)).notebook
                if any(fnmatchcase(name, pattern.strip()) for pattern in notebooks.split(",")):
                    found.append(Run.existing(run))
        return sorted(found, key=lambda run: run.folder)

    def find_bundle(self, name: str = "") -> Path | None:
        """Return the attached bundle (folder or zip); None if there is none and `name` is empty. On
        a laptop, `name` is the bundle's path; in a kernel, a folder above the bundle, such as the
        dataset's name. InputError is raised if no bundle has that name, or several match."""
        if not self.on_kaggle:
            return Path(name) if name else None
        every = find_attached_bundles(self.inputs)
        found = [path for path in every if name in ("", *path.relative_to(self.inputs).parts)]
        if len(found) > 1 or (name and not found):
            shown = ", ".join(map(str, found or every)) or "none"
            raise InputError(
                f"{self.inputs}: expected one bundle{f' in {name}' if name else ''}, found "
                f"{shown}. Attach it as a dataset, and name its folder in BUNDLE."
            )
        return found[0] if found else None

    def store(self, *, limit: bool) -> Path:
        """Return the folder of the store that all notebooks share. With `limit` (quick look),
        return another folder, which all quick looks share."""
        return self.scratch / ("notebooks-limit" if limit else "notebooks")

    @contextmanager
    def time_limit(self, hours: float) -> Iterator[None]:
        """End the block without an error `hours` after the notebook began, or at a SIGTERM.
        Complete jobs are kept, so the next session continues from there."""
        if threading.current_thread() is not threading.main_thread():
            raise InputError("time_limit works in the main thread only, where signals arrive.")
        # Wait at least LEAST_SECONDS: before the `try` begins, nothing catches OutOfTimeError.
        left = max(LEAST_SECONDS, self.begun + 3600 * hours - time.monotonic())
        before = {number: signal.signal(number, _stop) for number in REASONS}
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            yield
        except (OutOfTimeError, SystemError) as error:
            # An OutOfTimeError inside C code becomes the cause of a SystemError.
            reason = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(reason, OutOfTimeError):
                raise
            say(f"Stopped ({reason}). Complete models are kept; the next session continues.")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def leave_record(self, state: State, note: str = "") -> None:
        """Write kernel.json, which identifies these outputs."""
        commit = read_commit() or ""
        record = SessionRecord(
            notebook=self.notebook, push=self.push, commit=commit, state=state, note=note
        )
        write_session_record(record, self.output)

    def finish(self, missing: str = "") -> None:
        """Write the record at the end of the session; `missing` describes the remaining work."""
        self.leave_record("stopped" if missing else "finished", missing)
        say(f"{self.notebook}: {missing or 'finished'}. Outputs: {self.output}")


REASONS = {
    signal.SIGALRM: "the time limit",
    signal.SIGTERM: "a signal",
}


def _stop(number: int, frame: FrameType | None) -> None:
    raise OutOfTimeError(REASONS[signal.Signals(number)])


def find_inputs() -> Path:
    """Return the folder in which Kaggle mounts a notebook's inputs."""
    return Path(os.environ.get("FASTSLOW_INPUT") or "/kaggle/input")


def find_attached_data(inputs: Path, *, prepared: bool = True) -> Path | None:
    """Return a store below `inputs`; without one, a folder with npz files; without either, None.

    The sample inside a copy of this project is ignored. If several folders qualify, return the
    folder that contains the data of all others; InputError if none does.

    Args:
        prepared: whether a store is accepted; otherwise only npz files are.
    """
    stores = [
        Path(here)
        for here, _, files in os.walk(inputs, followlinks=True)
        if prepared and "graphs.parquet" in files and is_store(Path(here))
    ]
    if stores:
        return _choose({store: {(store / STORE_RECORD).read_bytes()} for store in sorted(stores)})
    roots = find_roots(inputs)
    ours = {root for root in roots if root.parts[-3:-1] == ("solution", "data")}
    others = sorted(roots.keys() - ours, key=lambda root: (-roots[root], root))
    if len(others) == 1:
        return others[0]
    files = {root: find_files(root) for root in others}
    return _choose({r: {(f.collection.name, f.split, f.name) for f in files[r]} for r in others})


def _choose(contents: Mapping[Path, Set[object]]) -> Path | None:
    """Return the first folder that has the contents of all folders; None if there are no folders.
    Raises InputError if no folder has everything. `contents`: items, such as graphs, by folder."""
    everything = frozenset[object]().union(*contents.values())
    for folder, held in contents.items():
        if held == everything:
            return folder
    if contents:
        raise InputError(
            f"{', '.join(map(str, contents))}: have different data, but only one folder can be "
            "used. Name it in FASTSLOW_DATA, or put all into one folder."
        )
    return None


def find_attached_bundles(inputs: Path) -> list[Path]:
    """Return the bundles below `inputs`: zip files, and folders, because Kaggle unpacks some zips.
    Bundles in outputs of notebooks and in copies of this project are left out."""
    found = []
    for here, folders, files in os.walk(inputs, followlinks=True):
        if KERNEL_RECORD in files or here.endswith(PACKAGED):
            folders.clear()
        elif BUNDLE_RECORD in files:
            folders.clear()
            found.append(Path(here))
        else:
            zips = [Path(here, name) for name in files if name.endswith(ZIP)]
            found += [path for path in zips if is_archive(path)]
    return sorted(found)


def add_to_sample(paths: Sequence[Path], root: Path, folder: Path) -> Path:
    """Replace `folder` by a copy of the sample with the npz files `paths` added, and return it. The
    files are below `root` in the same subfolders as in the sample."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SAMPLE, folder)
    for path in paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder
