"""Push a notebook: its code as a dataset, then the notebook itself, so that nothing runs twice.

1. pack the committed code, or take the package that is there already
2. upload it, unless the user's dataset has just that; wait until Kaggle has processed it
3. look: an earlier push whose fate is unknown is found in the source that Kaggle has, or is not
4. write the record, state "pushing"; push; the key of the push stands in the pushed source
5. where the answer was lost, look again: Kaggle's own copy of the source decides
"""

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from solution.system.errors import InputError
from solution.system.files import write_json
from submissions.calls import pause
from submissions.failures import KaggleError
from submissions.kernels.calls import NOT_TAKEN, DatasetStatus, Kernels
from submissions.kernels.notebooks import METADATA, Notebook, Value, set_values
from submissions.kernels.packaging import (
    PLACEHOLDER,
    SLUG,
    Package,
    name_commit,
    provide_package,
    write_metadata,
)
from submissions.kernels.pushes import (
    Push,
    Uploaded,
    read_pushes,
    read_uploaded,
    record,
    record_uploaded,
    records,
    show_now,
)
from submissions.locks import wait_for_lock
from submissions.provenance import Tree, make_key
from submissions.settings import Settings

DONE, UNKNOWN = 0, 3  # exit codes; InputError makes it 2


@dataclass(frozen=True)
class Order:
    """What is to be pushed."""

    notebook: Notebook
    values: dict[str, Value]
    tree: Tree
    resumes: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a push ended."""

    code: int
    message: str


def push(order: Order, settings: Settings) -> Outcome:
    """Push the notebook once; the message says what comes next.

    Raises InputError where nothing was pushed.
    """
    lock = records() / ".pushing.lock"
    with wait_for_lock(lock, settings.lock_seconds, "is pushing") as held:
        kernels = Kernels(settings, (held,))
        user = kernels.find_user()
        try:
            earlier = reconcile(order.notebook, kernels)
            if earlier is not None and _is_same(earlier, order):
                return Outcome(DONE, f"It had arrived already. {_describe(earlier, order)}")
            package = provide_package(order.tree, settings.wheels, settings.kernel_python)
            version = provide_dataset(package, f"{user}/{SLUG}", kernels)
            made = _send(order, package, version, user, kernels)
        except UnknownPushError as error:
            return Outcome(UNKNOWN, str(error))
        return Outcome(DONE, _describe(made, order))


class UnknownPushError(Exception):
    """Nobody can say at present whether a push arrived."""


def reconcile(notebook: Notebook, kernels: Kernels) -> Push | None:
    """Decide about a push in state "pushing"; returns it where it arrived.

    Raises UnknownPushError where Kaggle cannot be asked.
    """
    latest = read_pushes(notebook.name).latest
    if latest is None or latest.state != "pushing":
        return None
    return _look(notebook, latest, kernels)


def provide_dataset(package: Package, name: str, kernels: Kernels) -> int:
    """The version of the user's dataset that is the package, ready for use.

    Raises InputError where it is not there in the end.
    """
    found, last = kernels.find_dataset(name), read_uploaded()
    wanted = Uploaded(name=name, commit=package.commit, python=package.python, version=0)
    if found is not None and last == wanted.model_copy(update={"version": found.version}):
        is_ready = found.status == "ready"
        return found.version if is_ready else _await_ready(name, found.version, kernels)
    write_metadata(package.folder, name.partition("/")[0])
    version = _await_ready(name, _upload(package, name, found, kernels), kernels)
    record_uploaded(wanted.model_copy(update={"version": version}))
    return version


def _upload(package: Package, name: str, found: DatasetStatus | None, kernels: Kernels) -> int:
    """Upload until a version after the `found` one is there; returns the least that it may be.

    Where the answer was lost, a look decides. A version that lacks a file does not count.
    """
    settings, failure = kernels.settings, None
    wait, before = settings.wait_seconds, found.version if found else 0
    for left in reversed(range(settings.tries + 1)):
        if failure is not None:
            found = kernels.find_dataset(name)
            if failure.kind.undecided and found is not None and found.version > before:
                return before + 1
            if not left or not failure.kind.passing:
                raise failure
            pause(wait, "The dataset did not arrive, trying again soon")
            wait *= 2
        before = found.version if found else before
        try:
            kernels.upload_dataset(package.folder, package.commit[:12], is_there=found is not None)
            return before + 1
        except KaggleError as error:
            failure = error
    raise AssertionError("unreachable")


def _await_ready(name: str, least: int, kernels: Kernels) -> int:
    """Wait until Kaggle has processed a version that is not older than `least`."""
    settings = kernels.settings
    deadline, wait = time.monotonic() + settings.ready_seconds, settings.poll_seconds
    while True:
        found = kernels.find_dataset(name) or DatasetStatus()
        if found.status == "ready" and found.version >= least:
            return found.version
        if found.status in ("failed", "deleted"):
            raise kernels.explain(
                NOT_TAKEN, f"processing the dataset {name}", f"status {found.status}"
            )
        if time.monotonic() + wait > deadline:
            raise InputError(
                f"{name}: Kaggle has not processed the dataset within {settings.ready_seconds:g} "
                f"seconds (status {found.status or 'unknown'}). Run the same command again: it "
                "goes on from here. FASTSLOW_READY_SECONDS allows more."
            )
        pause(wait, "Waiting until the dataset is ready")
        wait = min(1.5 * wait, 30.0)


def _send(order: Order, package: Package, version: int, user: str, kernels: Kernels) -> Push:
    metadata = _fill_metadata(order, user)
    made = Push(
        key=make_key(datetime.now(UTC)),
        kernel=metadata["id"],
        commit=package.commit,
        when=show_now(),
        values=order.values,
        resumes=order.resumes,
        dataset=f"{user}/{SLUG}",
        dataset_version=version,
    )
    name = order.notebook.name
    with tempfile.TemporaryDirectory() as folder:
        values = {**order.values, "PUSH": made.key, "COMMIT": made.commit}
        _stage(order.notebook, metadata, values, Path(folder))
        record(name, made)
        try:
            number = kernels.push(Path(folder))
        except KaggleError as error:
            if error.kind.undecided:
                arrived = _look(order.notebook, made, kernels, str(error))
                if arrived is not None:
                    return arrived
            record(name, made.model_copy(update={"state": "failed", "note": str(error)}))
            raise
    return record(name, made.model_copy(update={"state": "pushed", "version": number}))


def _look(notebook: Notebook, made: Push, kernels: Kernels, said: str = "") -> Push | None:
    """Whether Kaggle's copy of the source is of this push; writes what was found."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            source = kernels.fetch_source(made.kernel, Path(folder))
        except KaggleError as error:
            raise UnknownPushError(
                f"{made.key}: {said} Whether it arrived is not known yet, because the look failed: "
                f"{error} Run the same command again: it looks first."
            ) from error
    if made.key in source:
        return record(notebook.name, made.model_copy(update={"state": "pushed"}))
    record(notebook.name, made.model_copy(update={"state": "failed", "note": "did not arrive"}))
    return None


def _stage(
    notebook: Notebook, metadata: dict[str, str], values: Mapping[str, Value], folder: Path
) -> None:
    """Write what the CLI uploads: the notebook with its values, and its metadata."""
    staged = set_values(notebook.read(), values)
    (folder / notebook.built.name).write_text(json.dumps(staged), encoding="utf-8")
    write_json(metadata, folder / METADATA)


def _fill_metadata(order: Order, user: str) -> dict[str, str]:
    text = json.dumps(order.notebook.read_metadata()).replace(PLACEHOLDER, user)
    metadata = json.loads(text)
    if order.resumes:
        metadata["kernel_sources"] = [*metadata["kernel_sources"], metadata["id"]]
    found: dict[str, str] = metadata
    return found


def _is_same(earlier: Push, order: Order) -> bool:
    return (
        earlier.commit == name_commit(order.tree)
        and earlier.values == order.values
        and earlier.resumes == order.resumes
    )


def _describe(made: Push, order: Order) -> str:
    number = f"version {made.version}" if made.version else "it"
    name = order.notebook.name
    return (
        f"Pushed: {made.kernel}, {number} runs as {made.key}: {made.url}\n"
        f"`make kernels-status` says how far it is; then `make kernels-pull NOTEBOOK={name}`."
    )
