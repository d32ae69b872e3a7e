"""Where work finds the graphs and the experiments: on this machine, or on another one.

Another machine reads the prepared graphs from a folder that all machines share, or from its mirror
of a bucket, which is fetched once a node; either way they are mapped, not sent with each task.
"""

import hashlib
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import polars as pl

from solution.experiments.base import Experiment, find_experiment, read_sources
from solution.store.store import RECORD, Store
from solution.system.errors import InputError
from solution.system.files import checksum, locked_until_free
from solution.system.mirrors import Mirror
from solution.system.names import place_below
from solution.training.executors.base import Executor
from solution.training.jobs import Job
from solution.training.plan import Plan


@dataclass(frozen=True)
class Address:
    """An experiment as another process can find it."""

    origin: str  # the name or the file that it was found by
    source: str  # the hash of its file
    is_quick: bool = False
    share: float = 1.0  # of the epochs of nets

    @classmethod
    def of(cls, experiment: Experiment) -> "Address":
        return cls(experiment.origin, experiment.source, experiment.is_quick, experiment.share)

    def find(self, path: str = "") -> Experiment:
        """The experiment; InputError where it is not as it was when the work began.

        Args:
            path: of a copy of its file.
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
    """A job as another process can find it."""

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
        """The job; InputError where its experiment was changed meanwhile."""
        found = site.find(self.experiment)
        return Job(found, self.group, self.collections, self.fold, self.seed)


class Site(Protocol):
    """What work has to go by, in any process; it can be pickled."""

    @property
    def plan(self) -> Plan:
        """The graphs and their folds, the same object in all of a process."""
        ...

    def find(self, address: Address) -> Experiment:
        """The experiment."""
        ...


@dataclass(frozen=True)
class Here:
    """Processes of this machine."""

    graphs: pl.DataFrame
    store: Store

    @cached_property
    def plan(self) -> Plan:
        """Made where the work is done, so that its graphs are read there."""
        return Plan(self.graphs, self.store)

    def find(self, address: Address) -> Experiment:
        return address.find()


@dataclass(frozen=True)
class Shared:
    """A folder as other machines may find it: at the same path, or as their mirror of a bucket."""

    folder: Path
    proof: str  # a file in it that is the same wherever it is the same folder
    seal: str  # the file's checksum
    url: str = ""

    @classmethod
    def of(cls, folder: Path, proof: str) -> "Shared":
        """What others must know of a folder of this machine; what is new in a mirror is sent."""
        mirror = Mirror.find(folder)
        if mirror is not None:
            mirror.push()
        path = folder.absolute()
        return cls(path, proof, checksum(path / proof), mirror.url if mirror else "")

    def is_here(self) -> bool:
        """Whether this machine sees it at the same path."""
        path = self.folder / self.proof
        return path.is_file() and checksum(path) == self.seal

    def find(self) -> Path | None:
        """The folder, or this machine's mirror of it, brought up to date; None: neither is."""
        if self.is_here():
            return self.folder
        if not self.url:
            return None
        mirror = Mirror.of(self.url)
        mirror.folder.mkdir(parents=True, exist_ok=True)
        with locked_until_free(mirror.folder):  # one process a node fetches, the others wait
            known = mirror.folder / self.proof
            if not known.is_file() or checksum(known) != self.seal:
                mirror.pull()
        return mirror.folder


@dataclass(frozen=True)
class There:
    """Other machines, which have the same program and may see the store."""

    graphs: pl.DataFrame
    store: Shared
    # Of each of the user's own experiments, by origin: its file and those beside it, by name.
    files: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """Made once a process, so that its graphs are mapped once."""
        folder = self.store.find()
        if folder is None:
            raise InputError(
                f"{platform.node()}: does not see {self.store.folder}. Prepare the data in a "
                "folder that all machines share, or in a bucket: --store s3://BUCKET/NAME."
            )
        return Plan(self.graphs, Store.open(folder))

    def find(self, address: Address) -> Experiment:
        """The experiment; the files of one of the user's own are written here first."""
        if address.origin not in self.files:
            return address.find()
        own = self.files[address.origin]
        return address.find(str(_write_once(own) / Path(address.origin).name))


_written: dict[str, "tempfile.TemporaryDirectory[str]"] = {}  # of this process, until it ends


def _write_once(files: Mapping[str, bytes]) -> Path:
    """A folder with these files, the same for equal ones: what was imported stays as it is."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    if digest not in _written:
        _written[digest] = tempfile.TemporaryDirectory(prefix="fastslow-")
        for name, content in files.items():
            path = place_below(Path(_written[digest].name), name, "files of an experiment")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return Path(_written[digest].name)


def choose_site(executor: Executor, plan: Plan, experiments: Sequence[Experiment]) -> Site:
    """How the executor's processes find the graphs of the plan, and these experiments."""
    if not executor.is_away:
        return Here(plan.graphs, plan.store)
    own = sorted({item.origin for item in experiments if item.origin.endswith(".py")})
    files = {origin: read_sources(Path(origin)) for origin in own}
    return There(plan.graphs, Shared.of(plan.store.folder, RECORD), files)
