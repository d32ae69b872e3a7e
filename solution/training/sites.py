"""Tell workers how to find the graphs and the experiments, on this machine or another one.

Another machine reads the prepared graphs from a shared folder, or from its mirror of a bucket,
which is downloaded once per node. In both cases graphs are memory-mapped, not sent with each task.
"""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import polars as pl

from solution.experiments.base import Experiment, find_experiment, read_sources
from solution.store.store import RECORD, Store
from solution.system.buckets import Mirror
from solution.system.errors import InputError
from solution.system.files import checksum, locked_until_free
from solution.system.names import place_below
from solution.system.scratch import ScratchFolder
from solution.training.executors.base import Executor
from solution.training.jobs import Job
from solution.training.plan import Plan


@dataclass(frozen=True)
class Address:
    """An experiment, described so that another process can load it."""

    origin: str  # the name or file from which it was loaded
    source: str  # the hash of its file
    is_quick: bool = False
    share: float = 1.0  # share of the epochs of nets

    @classmethod
    def of(cls, experiment: Experiment) -> "Address":
        return cls(experiment.origin, experiment.source, experiment.is_quick, experiment.share)

    def find(self, path: str = "") -> Experiment:
        """Load the experiment; raise InputError if its file has changed since the work began.

        Args:
            path: of a copy of its file; empty: the original.
        """
        found = find_experiment(path or self.origin)
        if found.source != self.source:
            raise InputError(
                f"{self.origin}: was changed while its models were trained. Give the changed "
                "experiment another name, or start its run afresh with --replace."
            )
        found = found.quick() if self.is_quick else found
        return found.cut(len(found.seeds), self.share)


@dataclass(frozen=True)
class JobAddress:
    """A job, described so that another process can load it."""

    experiment: Address
    group: tuple[str, ...]
    collections: tuple[str, ...]
    fold: int
    seed: int

    @classmethod
    def of(cls, job: Job) -> "JobAddress":
        own = Address.of(job.experiment)
        return cls(own, job.group, job.collections, job.fold, job.seed)

    def find(self, site: "Site") -> Job:
        """Load the job; raise InputError if its experiment's file has changed."""
        found = site.find(self.experiment)
        return Job(found, self.group, self.collections, self.fold, self.seed)


class Site(Protocol):
    """What a worker needs to find data and experiments; it can be pickled."""

    @property
    def plan(self) -> Plan:
        """The graphs and their folds; the same object throughout a process."""
        ...

    def find(self, address: Address) -> Experiment:
        """Load the experiment."""
        ...


@dataclass(frozen=True)
class Here:
    """The site of workers on this machine."""

    graphs: pl.DataFrame
    store: Store

    @cached_property
    def plan(self) -> Plan:
        """The plan, made in each worker, which reads the graphs itself."""
        return Plan(self.graphs, self.store)

    def find(self, address: Address) -> Experiment:
        return address.find()


@dataclass(frozen=True)
class Shared:
    """A folder, described so that other machines can find it: by its path, or in a bucket."""

    folder: Path
    proof: str  # a file that identifies the folder
    seal: str  # the checksum of that file
    url: str = ""

    @classmethod
    def of(cls, folder: Path, proof: str) -> "Shared":
        """Describe a folder of this machine; if it is a mirror, upload its changes first."""
        mirror = Mirror.find(folder)
        if mirror is not None:
            mirror.push()
        path = folder.absolute()
        return cls(path, proof, checksum(path / proof), mirror.url if mirror else "")

    def is_here(self) -> bool:
        """Return whether this machine sees the folder at the same path."""
        path = self.folder / self.proof
        return path.is_file() and checksum(path) == self.seal

    def find(self) -> Path | None:
        """Return the folder, or this machine's updated mirror of its bucket; None if there is
        neither."""
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
    """The site of workers on other machines, which need the same program and access to the
    store."""

    graphs: pl.DataFrame
    store: Shared
    # For each user's experiment, by origin: the contents of its file and of those it imports, by
    # name.
    files: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The plan, made once per process, so that graphs are mapped once."""
        folder = self.store.find()
        if folder is None:
            raise InputError(
                f"{platform.node()}: does not see {self.store.folder}. Prepare the data in a "
                "folder that all machines share, or in a bucket: --store s3://BUCKET/NAME."
            )
        return Plan(self.graphs, Store.open(folder))

    def find(self, address: Address) -> Experiment:
        """Load the experiment; the files of a user's experiment are first written to this
        machine."""
        if address.origin not in self.files:
            return address.find()
        own = self.files[address.origin]
        return address.find(str(_write_once(own) / Path(address.origin).name))


_written: dict[str, ScratchFolder] = {}  # by hash of the files


def _write_once(files: Mapping[str, bytes]) -> Path:
    """Return a folder with these files; equal files share a folder, so imported modules stay
    valid."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    if digest not in _written:
        _written[digest] = ScratchFolder()
        for name, content in files.items():
            path = place_below(_written[digest].path, name, "files of an experiment")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return _written[digest].path


def choose_site(executor: Executor, plan: Plan, experiments: Sequence[Experiment]) -> Site:
    """Return how the executor's workers find the graphs of the plan and these experiments."""
    if not executor.is_away:
        return Here(plan.graphs, plan.store)
    own = sorted({item.origin for item in experiments if item.origin.endswith(".py")})
    files = {origin: read_sources(Path(origin)) for origin in own}
    return There(plan.graphs, Shared.of(plan.store.folder, RECORD), files)
