"""Train models on the nodes of a cluster, which may not see the folder of their run.

A model is returned as the bytes of its folder. Checkpoints of a fit are kept where all machines see
them, in the run's folder or its bucket, so that another node can continue after a node died. If
there is no such folder, the fit starts again.
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
from solution.system.buckets import Mirror
from solution.system.errors import InputError
from solution.system.files import TEMPORARY
from solution.system.report import Report
from solution.system.zips import pack_folder
from solution.training.executors.base import Executor, Needs
from solution.training.executors.local import BYTES_OF_A_WORKER
from solution.training.fit import train_job
from solution.training.jobs import Job
from solution.training.plan import Plan
from solution.training.sites import JobAddress, Shared, Site

SEND_SECONDS = 20.0  # between two uploads of a fit's checkpoints to a bucket
BYTES_OF_A_FIT = 1 << 30  # memory of a fit without its graphs
BYTES_OF_GRAPHS = 8  # memory per byte of the graphs' files: tables of features, activations


@dataclass(frozen=True)
class AwayTrainer:
    """The function that workers on other machines call: train a job, return its folder as bytes."""

    site: Site
    run: Shared

    def __call__(self, address: JobAddress, report: Report) -> bytes:
        """Train the job, and return an archive of its folder."""
        job = address.find(self.site)
        with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
            run = Run(Path(scratch))
            with self._checkpoints(job, run) as checkpoints:
                train_job(job, self.site.plan, run, report, checkpoints=checkpoints)
            return pack_folder(job.folder(run))

    @contextmanager
    def _checkpoints(self, job: Job, scratch: Run) -> Iterator[Path]:
        """Yield the folder for the fit's checkpoints; if possible one that other machines can
        read."""
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
    """Download the mirror, upload its changes regularly during the block, and upload all at the
    end."""
    mirror.pull()
    mirror.folder.mkdir(parents=True, exist_ok=True)
    try:
        with _sending_now_and_then(mirror):
            yield
    # a diverged fit has deleted its checkpoints here, so delete them in the bucket, too
    except InputError:
        _send_all(mirror)
        raise
    _send_all(mirror)


@contextmanager
def _sending_now_and_then(mirror: Mirror) -> Iterator[None]:
    over = threading.Event()

    def send() -> None:
        while not over.wait(SEND_SECONDS):
            with suppress(InputError):  # tried again in the next round
                mirror.push(over=True)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _send_all(mirror: Mirror) -> None:
    """Upload the current state, even if the folder is gone, which deletes the files in the
    bucket."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    mirror.push(over=True)  # overwrite what a lost machine may have uploaded for the same fit


@contextmanager
def share_run(run: Run) -> Iterator[Shared]:
    """Yield how other machines find the run's folder."""
    # a machine that sees this file sees the same folder
    token = run.folder / f"{TEMPORARY}{secrets.token_hex(8)}"
    token.write_text(secrets.token_hex(16), encoding="utf-8")
    try:
        yield Shared.of(run.folder, token.name)
    finally:
        token.unlink(missing_ok=True)


def estimate_needs(jobs: Sequence[Job], plan: Plan, executor: Executor) -> list[Needs]:
    """Return what each fit needs: a core, a share of a GPU if it trains a net, and memory.

    For processes of this machine nothing is estimated, which saves looking at all files.
    """
    if not executor.is_away:
        return [Needs()] * len(jobs)
    memory = {group: estimate_memory(group, plan) for group in {job.group for job in jobs}}
    return [choose_needs(job.experiment.ranker, memory[job.group], executor) for job in jobs]


def estimate_memory(group: Sequence[str], plan: Plan) -> int:
    """Return an estimate of the bytes of memory of a fit on these collections."""
    rows = pl.concat([plan.rows(name) for name in group])
    files = sum(path.stat().st_size for path in plan.store.paths_of(rows))
    return min(BYTES_OF_A_WORKER, BYTES_OF_A_FIT + BYTES_OF_GRAPHS * files)


def choose_needs(ranker: RankerSettings, memory: int, executor: Executor) -> Needs:
    """Return what a fit with this memory (bytes) asks a cluster for."""
    if not ranker.trains_a_net:
        return Needs(bytes=memory)
    return Needs(1, executor.gpu_share, memory)
