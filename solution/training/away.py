"""Train models where the folder of their run may not be: on the nodes of a cluster.

A model comes back as the bytes of its folder. A fit's checkpoints lie where all machines see them,
in the run's folder or its bucket, so that a fit whose node died goes on elsewhere; where there is
no such place, it begins anew.
"""

import secrets
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from solution.models.base import RankerSettings
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import TEMPORARY
from solution.system.mirrors import Mirror
from solution.system.parcel import pack_folder
from solution.system.report import Report
from solution.training.executors.base import Executor, Needs
from solution.training.executors.local import BYTES_OF_A_WORKER
from solution.training.fit import train_job
from solution.training.jobs import Job
from solution.training.plan import Plan
from solution.training.sites import JobAddress, Shared, Site

SEND_SECONDS = 20.0  # between two looks at a fit's checkpoints, where they lie in a bucket
BYTES_OF_A_FIT = 1 << 30  # without its graphs
BYTES_OF_GRAPHS = 8  # for each in their files: tables of features, activations


@dataclass(frozen=True)
class AwayTrainer:
    """The work of a run on other machines: trains a job by its address, returns its folder."""

    site: Site
    run: Shared

    def __call__(self, address: JobAddress, report: Report) -> bytes:
        """Train the job; the files of its folder, packed."""
        job = address.find(self.site)
        with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
            run = Run(Path(scratch))
            with self._checkpoints(job, run) as checkpoints:
                train_job(job, self.site.plan, run, report, checkpoints=checkpoints)
            return pack_folder(job.folder(run))

    @contextmanager
    def _checkpoints(self, job: Job, scratch: Run) -> Iterator[Path]:
        """Where the fit keeps its state, so that another machine can go on from it."""
        if self.run.is_here():
            shared = Run(self.run.folder)
            yield shared.checkpoints(job.folder(shared))
            return
        own = scratch.checkpoints(job.folder(scratch))
        if not self.run.url:
            yield own
            return
        name = own.relative_to(scratch.folder).as_posix()
        with sending(Mirror(f"{self.run.url}/{name}", own)):
            yield own


@contextmanager
def sending(mirror: Mirror) -> Iterator[None]:
    """Fetch what is there; inside the block send what changes, now and then; empty it after."""
    mirror.pull()
    mirror.folder.mkdir(parents=True, exist_ok=True)
    try:
        with _sending_now_and_then(mirror):
            yield
    except InputError:  # what diverged was removed here, and nobody shall go on from it
        _send_all(mirror)
        raise
    _send_all(mirror)


@contextmanager
def _sending_now_and_then(mirror: Mirror) -> Iterator[None]:
    over = threading.Event()

    def send() -> None:
        while not over.wait(SEND_SECONDS):
            with suppress(InputError):  # it is tried again
                mirror.push(over=True)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _send_all(mirror: Mirror) -> None:
    """What is there now, which may be nothing: not even the folder."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    mirror.push(over=True)  # of the same fit, which a machine that was lost may have sent as well


@contextmanager
def share_run(run: Run) -> Iterator[Shared]:
    """The run's folder as other machines may find it."""
    token = run.folder / f"{TEMPORARY}{secrets.token_hex(8)}"  # who sees it sees this very folder
    token.write_text(secrets.token_hex(16), encoding="utf-8")
    try:
        yield Shared.of(run.folder, token.name)
    finally:
        token.unlink(missing_ok=True)


def estimate_needs(jobs: Sequence[Job], plan: Plan, executor: Executor) -> list[Needs]:
    """What each fit takes: a core, a share of a GPU where it trains a net, and memory.

    Nobody asks on this machine, where the files of all graphs need not be looked at.
    """
    if not executor.is_away:
        return [Needs()] * len(jobs)
    memory = {group: estimate_memory(group, plan) for group in {job.group for job in jobs}}
    return [choose_needs(job.experiment.ranker, memory[job.group], executor) for job in jobs]


def estimate_memory(group: Sequence[str], plan: Plan) -> int:
    """Bytes of a fit that learns from these collections."""
    rows = pl.concat([plan.rows(name) for name in group])
    files = sum(path.stat().st_size for path in plan.store.paths_of(rows))
    return min(BYTES_OF_A_WORKER, BYTES_OF_A_FIT + BYTES_OF_GRAPHS * files)


def choose_needs(ranker: RankerSettings, memory: int, executor: Executor) -> Needs:
    """What a fit of so many bytes asks a cluster for."""
    if not ranker.trains_a_net:
        return Needs(bytes=memory)
    return Needs(1, executor.gpu_share, memory)
