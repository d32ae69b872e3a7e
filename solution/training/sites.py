"""Train jobs in worker processes of this machine or of other machines.

A site tells a worker where the prepared graphs and the experiments are. Another machine reads the
prepared graphs from a shared folder, or from its mirror of a bucket, which is downloaded once per
node. In both cases graphs are memory-mapped, not sent with each task. A worker on another machine
returns the trained model as an archive of its folder, and the calling process writes it into the
run. Checkpoints are kept in the run's folder or its bucket, so that another node can continue a fit
after a node died. If a node sees neither, the fit starts again.
"""

import hashlib
import platform
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import polars as pl

from solution.experiments.base import Experiment, find_experiment, read_sources
from solution.models.base import RankerSettings
from solution.runs.folder import Run
from solution.store.store import RECORD, Store
from solution.system.buckets import Mirror, send_back
from solution.system.errors import InputError
from solution.system.files import TEMPORARY, checksum, locked_until_free, remove
from solution.system.names import place_below
from solution.system.report import Report
from solution.system.scratch import ScratchFolder
from solution.system.zips import pack_folder, unpack_folder
from solution.training.executors.base import BYTES_OF_A_WORKER, Executor, Needs, Task
from solution.training.fit import train_job
from solution.training.jobs import Job
from solution.training.plan import Plan
from solution.training.watch import Watch

SEND_SECONDS = 20.0  # seconds between two uploads of a fit's checkpoints to a bucket
BYTES_OF_A_FIT = 1 << 30  # bytes of memory that a fit needs besides its graphs
BYTES_OF_GRAPHS = 8  # bytes of memory (feature tables, activations) per byte of the graphs' files


@dataclass(frozen=True)
class ExperimentSpec:
    """An experiment, described so that another process can load it."""

    origin: str  # name or file that the experiment was loaded from; empty if it was made in memory
    source: str  # hash of the experiment's code
    is_quick: bool = False
    share: float = 1.0  # fraction of the usual epochs for which nets are trained
    made: Experiment | None = None  # the experiment itself, if it was made in memory

    @classmethod
    def of(cls, experiment: Experiment) -> "ExperimentSpec":
        made = None if experiment.origin else experiment
        facts = experiment.origin, experiment.source, experiment.is_quick, experiment.share
        return cls(*facts, made)

    def find(self, path: str = "") -> Experiment:
        """Load the experiment from the file `path`, by default from its origin; raise InputError if
        the experiment's code has changed."""
        if self.made is not None:
            return self.made
        found = find_experiment(path or self.origin)
        if found.source != self.source:
            raise InputError(
                f"{self.origin}: was changed while its models were trained. Give the changed "
                "experiment another name, or start its run afresh with --replace."
            )
        found = found.quick() if self.is_quick else found
        return found.cut(len(found.seeds), self.share)


@dataclass(frozen=True)
class JobSpec:
    """A job, described so that another process can load it."""

    experiment: ExperimentSpec
    group: tuple[str, ...]
    collections: tuple[str, ...]
    fold: int
    seed: int

    @classmethod
    def of(cls, job: Job) -> "JobSpec":
        spec = ExperimentSpec.of(job.experiment)
        return cls(spec, job.group, job.collections, job.fold, job.seed)

    def find(self, site: "Site") -> Job:
        """Load the job; raise InputError if its experiment's file has changed."""
        found = site.find(self.experiment)
        return Job(found, self.group, self.collections, self.fold, self.seed)


class Site(Protocol):
    """A picklable description of where a worker finds the graphs and the experiments."""

    @property
    def plan(self) -> Plan:
        """The graphs of the run and their folds; each process makes the plan once."""
        ...

    def find(self, spec: ExperimentSpec) -> Experiment:
        """Load the experiment that `spec` describes."""
        ...


@dataclass(frozen=True)
class Here:
    """A Site for workers on this machine, which read the store and the experiments' files here."""

    graphs: pl.DataFrame
    store: Store

    @cached_property
    def plan(self) -> Plan:
        """The graphs of the run and their folds; each worker process reads the graphs itself."""
        return Plan(self.graphs, self.store)

    def find(self, spec: ExperimentSpec) -> Experiment:
        return spec.find()


@dataclass(frozen=True)
class SharedFolder:
    """A folder, described so that other machines can find it: by its path, or in a bucket."""

    folder: Path
    proof: str  # name of a file in the folder whose checksum identifies the folder
    seal: str  # the checksum of the file `proof`
    url: str = ""

    @classmethod
    def of(cls, folder: Path, proof: str) -> "SharedFolder":
        """Describe a folder of this machine; if it mirrors a bucket, upload its changes first."""
        mirror = Mirror.find(folder)
        if mirror is not None:
            mirror.push()
        path = folder.absolute()
        return cls(path, proof, checksum(path / proof), mirror.url if mirror else "")

    def is_here(self) -> bool:
        """Return whether the path leads to the described folder on this machine, too: its file
        `proof` has the checksum `seal`."""
        path = self.folder / self.proof
        return path.is_file() and checksum(path) == self.seal

    def find(self) -> Path | None:
        """Return the folder's path on this machine: the shared folder, or an updated mirror of the
        bucket; None without either."""
        if self.is_here():
            return self.folder
        if not self.url:
            return None
        mirror = Mirror.of(self.url)
        mirror.folder.mkdir(parents=True, exist_ok=True)
        with locked_until_free(mirror.folder):  # one process per node downloads, the others wait
            known = mirror.folder / self.proof
            if not known.is_file() or checksum(known) != self.seal:
                mirror.pull()
        return mirror.folder


@dataclass(frozen=True)
class There:
    """A Site for workers on other machines; they need the same program and access to the store."""

    graphs: pl.DataFrame
    store: SharedFolder
    # files[origin][name]: contents of a user's experiment file, and of the files that it imports
    files: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The graphs of the run and their folds, memory-mapped once per process."""
        folder = self.store.find()
        if folder is None:
            raise InputError(
                f"{platform.node()}: does not see {self.store.folder}. Prepare the data in a "
                "folder that all machines share, or in a bucket: --store s3://BUCKET/NAME."
            )
        return Plan(self.graphs, Store.open(folder))

    def find(self, spec: ExperimentSpec) -> Experiment:
        """Load the experiment; a user's files are first written to a scratch folder here."""
        if spec.origin not in self.files:
            return spec.find()
        files = self.files[spec.origin]
        return spec.find(str(_write_once(files) / Path(spec.origin).name))


# scratch folder of each set of files; the key is a hash of the files' names and contents
_written: dict[str, ScratchFolder] = {}


def _write_once(files: Mapping[str, bytes]) -> Path:
    """Return a scratch folder with the files. Equal sets of files share a folder, so that modules
    imported from it stay valid."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    if digest not in _written:
        _written[digest] = ScratchFolder()
        for name, content in files.items():
            path = place_below(_written[digest].path, name, "files of an experiment")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return _written[digest].path


def choose_site(executor: Executor, plan: Plan, experiments: Sequence[Experiment]) -> Site:
    """Return how the executor's workers find the graphs and experiments."""
    if not executor.is_away:
        return Here(plan.graphs, plan.store)
    origins = sorted({item.origin for item in experiments if item.origin.endswith(".py")})
    files = {origin: read_sources(Path(origin)) for origin in origins}
    return There(plan.graphs, SharedFolder.of(plan.store.folder, RECORD), files)


def train_here(executor: Executor, jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch) -> None:
    """Train the jobs in processes of this machine, which write to the run themselves."""
    tasks = [Task(job.describe(), (JobSpec.of(job),)) for job in jobs]
    trainer = LocalTrainer(Here(plan.graphs, plan.store), run)
    executor.run(trainer, tasks, watch, lambda number, _: _send_job(jobs[number].folder(run), run))


def train_away(executor: Executor, jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch) -> None:
    """Train the jobs on other machines; write the models that these return into the run."""

    def keep(number: int, packed: bytes) -> None:
        folder = jobs[number].folder(run)
        unpack_folder(packed, folder)
        remove(run.checkpoints(folder))
        _send_job(folder, run)

    memory = {group: estimate_memory(group, plan) for group in {job.group for job in jobs}}
    tasks = [
        Task(
            job.describe(),
            (JobSpec.of(job),),
            choose_needs(job.experiment.ranker, memory[job.group], executor),
        )
        for job in jobs
    ]
    site = choose_site(executor, plan, [job.experiment for job in jobs])
    with share_run(run) as shared:
        executor.run(AwayTrainer(site, shared), tasks, watch, keep)


def _send_job(folder: Path, run: Run) -> None:
    """Upload the folder of a job if the run's folder mirrors a bucket."""
    send_back(run.folder, folder.relative_to(run.folder).as_posix())


@dataclass(frozen=True)
class LocalTrainer:
    """The function that workers call to train a job; they must see the folder of the run."""

    site: Site
    run: Run

    def __call__(self, spec: JobSpec, report: Report) -> None:
        """Train the job; InputError if its experiment's file has changed."""
        job = spec.find(self.site)
        train_job(job, self.site.plan, self.run, report)


@dataclass(frozen=True)
class AwayTrainer:
    """The function that workers on other machines call: train a job, return its folder as bytes."""

    site: Site
    run: SharedFolder

    def __call__(self, spec: JobSpec, report: Report) -> bytes:
        """Train the job, and return an archive of its folder."""
        job = spec.find(self.site)
        with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
            run = Run(Path(scratch))
            with self._checkpoints(job, run) as checkpoints:
                train_job(job, self.site.plan, run, report, checkpoints=checkpoints)
            return pack_folder(job.folder(run))

    @contextmanager
    def _checkpoints(self, job: Job, scratch: Run) -> Iterator[Path]:
        """Yield the checkpoints' folder: in the run's folder, if this machine sees it, or a scratch
        folder that is uploaded to the run's bucket, if any."""
        if self.run.is_here():
            shared = Run(self.run.folder)
            yield shared.checkpoints(job.folder(shared))
            return
        local = scratch.checkpoints(job.folder(scratch))
        if not self.run.url:
            yield local
            return
        name = local.relative_to(scratch.folder).as_posix()
        with sending(Mirror(f"{self.run.url}/{name}", local)):
            yield local


@contextmanager
def sending(mirror: Mirror) -> Iterator[None]:
    """Download a mirrored folder. Upload its changes every SEND_SECONDS during the block, and all
    remaining changes after the block."""
    mirror.pull()
    mirror.folder.mkdir(parents=True, exist_ok=True)
    try:
        with _sending_now_and_then(mirror):
            yield
    # A diverged fit has deleted its checkpoints here, so delete them in the bucket, too.
    except InputError:
        _send_all(mirror)
        raise
    _send_all(mirror)


@contextmanager
def _sending_now_and_then(mirror: Mirror) -> Iterator[None]:
    over = threading.Event()

    def send() -> None:
        while not over.wait(SEND_SECONDS):
            with suppress(InputError):  # a failed upload is tried again after SEND_SECONDS
                mirror.push(over=True)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _send_all(mirror: Mirror) -> None:
    """Upload the folder's current state, or delete a deleted folder's files in the bucket."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    # overwrite files that a lost machine may have uploaded for the same fit
    mirror.push(over=True)


@contextmanager
def share_run(run: Run) -> Iterator[SharedFolder]:
    """Yield a description by which other machines find the run's folder."""
    # A machine that sees this file, whose name is random, sees the run's folder.
    token = run.folder / f"{TEMPORARY}{secrets.token_hex(8)}"
    token.write_text(secrets.token_hex(16), encoding="utf-8")
    try:
        yield SharedFolder.of(run.folder, token.name)
    finally:
        token.unlink(missing_ok=True)


def estimate_memory(group: Sequence[str], plan: Plan) -> int:
    """Return an estimate of the memory (bytes) that a fit on the collections needs."""
    rows = pl.concat([plan.rows(name) for name in group])
    files = sum(path.stat().st_size for path in plan.store.paths_of(rows))
    return min(BYTES_OF_A_WORKER, BYTES_OF_A_FIT + BYTES_OF_GRAPHS * files)


def choose_needs(ranker: RankerSettings, memory: int, executor: Executor) -> Needs:
    """Return the resources to request for a fit: `memory` bytes, and for a net a share of a GPU."""
    if not ranker.trains_a_net:
        return Needs(bytes=memory)
    return Needs(1, executor.gpu_share, memory)
