"""Push a notebook: its code as a dataset, then the notebook, exactly once.

A push has a key, its unique name, which the pushed source contains.

1. if it is unknown whether an earlier push arrived, look for its key in Kaggle's copy of the source
2. refuse if the notebook's latest session still runs, because only the newest push can be pulled
3. pack the committed code, or reuse the existing package
4. upload the package, unless it is the dataset's newest version; wait until Kaggle has processed it
5. write the record of the push, state "pushing"; push the source with the key
6. if the call failed, look for the key in Kaggle's copy of the source, which decides whether the
   push arrived; look once more a little later
"""

import json
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.files import write_json
from submissions.calls import WaitSettings, pause
from submissions.failures import DONE, NOT_KNOWN, KaggleError, Outcome
from submissions.kernels.calls import NOT_TAKEN, REFUSED, Kernels
from submissions.kernels.datasets import check_dataset_name, find_shared, provide, write_metadata
from submissions.kernels.notebooks import METADATA, Notebook, Value, read_parameters, set_values
from submissions.kernels.packaging import PLACEHOLDER, SLUG, Package, name_commit, provide_package
from submissions.kernels.pushes import (
    Push,
    Uploaded,
    lock_records,
    read_pushes,
    record,
    records,
)
from submissions.provenance import SourceTree, make_key

BUNDLE = "BUNDLE"  # parameter of notebooks that can use a bundle


@dataclass(frozen=True)
class Order:
    """A request to push a notebook."""

    notebook: Notebook
    values: dict[str, Value]
    tree: SourceTree
    resumes: bool = False
    bundle: str = ""  # name of a shared bundle, or OWNER/SLUG; empty: none
    forced: bool = False  # push even if the notebook's latest session still runs


def push(order: Order, settings: WaitSettings) -> Outcome:
    """Push the notebook once; return an exit code, and a message that says what to do next. Raises
    InputError if nothing was pushed."""
    if order.bundle:
        check_dataset_name(order.bundle)
    with lock_records(settings) as held:
        kernels = Kernels(settings, (held,))
        user = kernels.find_user()
        try:
            earlier = reconcile(order.notebook, kernels)
            order = _name_bundle(order, user, kernels)
            wanted = (name_commit(order.tree), order.values, order.resumes, order.bundle)
            if earlier is not None and earlier.ordered == wanted:
                return Outcome(DONE, f"It had arrived already. {_describe(earlier, order)}")
            _check_session(order, user, kernels)
            package = provide_package(order.tree, settings.wheels, settings.kernel_python)
            version = provide_dataset(package, f"{user}/{SLUG}", kernels)
            made = _send(order, package, version, user, kernels)
        except UnknownPushError as error:
            return Outcome(NOT_KNOWN, str(error))
        return Outcome(DONE, _describe(made, order))


class UnknownPushError(Exception):
    """Raised if it is not known yet whether a push arrived at Kaggle."""


def reconcile(notebook: Notebook, kernels: Kernels) -> Push | None:
    """Find out whether a push in state "pushing" arrived; return it if it did. Raises
    UnknownPushError if Kaggle cannot be asked."""
    latest = read_pushes(notebook.name).latest
    if latest is None or latest.state != "pushing":
        return None
    return _look(notebook, latest, kernels)


def _check_session(order: Order, user: str, kernels: Kernels) -> None:
    """Raise InputError if the notebook's latest session still runs (unless `forced`), or if there
    is no session to resume from."""
    name = order.notebook.name
    kernel = str(_fill_metadata(order, user, kernels.settings.competition)["id"])
    try:
        session = kernels.find_session(kernel)
    except KaggleError as error:
        if error.kind is not REFUSED:
            raise
        if order.resumes:
            arrived = read_pushes(name).arrived
            if arrived is not None and arrived.kernel == kernel:
                raise  # Kaggle has or had it, and refuses for another reason
            raise InputError(
                f"{name}: Kaggle has no {kernel} so far, so there is no output to resume from. "
                "Push it without --resume (make: RESUME=1)."
            ) from error
        return
    if session.is_running and not order.forced:
        raise InputError(
            f"{name}: its latest session has the state {session.status.lower()}: "
            f"https://www.kaggle.com/code/{kernel}. After another push its outputs could not be "
            "pulled. Wait until it has finished (`make kernels-status`), or give --force (make: "
            "FORCE=1)."
        )


def provide_dataset(package: Package, name: str, kernels: Kernels) -> int:
    """Upload the package if needed; return its version in the user's dataset, ready for use. Raises
    InputError if it is not ready in time."""
    wanted = Uploaded(name=name, commit=package.commit, python=package.python, version=0)
    write_metadata(package.folder, name.partition("/")[0], SLUG)
    path, note = records() / "dataset.json", package.commit[:12]
    return provide(package.folder, name, wanted, path, note, kernels)[0]


def _name_bundle(order: Order, user: str, kernels: Kernels) -> Order:
    """Return the order with the full name of its bundle, OWNER/SLUG. Raises InputError if there is
    no such bundle, or the notebook takes no bundle."""
    if not order.bundle:
        return order
    if BUNDLE not in read_parameters(order.notebook.read()):
        raise InputError(f"{order.notebook.name}: takes no bundle. Notebook 4 predicts with one.")
    return replace(order, bundle=find_shared(order.bundle, user, kernels))


def _send(order: Order, package: Package, version: int, user: str, kernels: Kernels) -> Push:
    metadata, now = _fill_metadata(order, user, kernels.settings.competition), datetime.now(UTC)
    made = Push(
        key=make_key(now),
        kernel=metadata["id"],
        commit=package.commit,
        when=now.isoformat(timespec="seconds"),
        values=order.values,
        resumes=order.resumes,
        dataset=f"{user}/{SLUG}",
        dataset_version=version,
        bundle=order.bundle,
    )
    name = order.notebook.name
    with tempfile.TemporaryDirectory() as folder:
        values = {**order.values, "PUSH": made.key, "COMMIT": made.commit}
        if order.bundle:
            values[BUNDLE] = order.bundle.partition("/")[2]
        staged = json.dumps(set_values(order.notebook.read(), values))
        Path(folder, order.notebook.built.name).write_text(staged, encoding="utf-8")
        write_json(metadata, Path(folder, METADATA))
        record(name, made)
        try:
            number = kernels.push(Path(folder))
        except KaggleError as error:
            if error.kind is not NOT_TAKEN:  # NOT_TAKEN: Kaggle said that it rejects the push
                arrived = _look(order.notebook, made, kernels, str(error))
                if arrived is not None:
                    return arrived
            record(name, made.model_copy(update={"state": "failed", "note": str(error)}))
            raise
    return record(name, made.model_copy(update={"state": "pushed", "version": number}))


def _look(notebook: Notebook, made: Push, kernels: Kernels, said: str = "") -> Push | None:
    """Return the push if Kaggle's copy of the source contains its key, else None. The result is
    written to the record of the push. `said`: the error of the push, for a message."""
    if not _is_there(made, kernels, said):
        pause(kernels.settings.quiet_seconds, "Checking whether the push arrived after all")
        if not _is_there(made, kernels, said):
            failed = {"state": "failed", "note": "did not arrive"}
            record(notebook.name, made.model_copy(update=failed))
            return None
    return record(notebook.name, made.model_copy(update={"state": "pushed"}))


def _is_there(made: Push, kernels: Kernels, said: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return made.key in kernels.fetch_source(made.kernel, Path(folder))
        except KaggleError as error:
            raise UnknownPushError(
                f"{made.key}: {said} Whether it arrived is not known yet, because the look failed: "
                f"{error} Run the same command again: it looks first."
            ) from error


def _fill_metadata(order: Order, user: str, competition: str) -> dict[str, Any]:
    """Return the content of kernel-metadata.json with this push's inputs. A notebook with a bundle
    gets the competition's data instead of other notebooks' outputs."""
    text = json.dumps(order.notebook.read_metadata()).replace(PLACEHOLDER, user)
    metadata: dict[str, Any] = json.loads(text)
    if order.bundle:
        metadata["dataset_sources"] = [*metadata["dataset_sources"], order.bundle]
        metadata |= {"competition_sources": [competition], "kernel_sources": []}
    if order.resumes:
        metadata["kernel_sources"] = [*metadata["kernel_sources"], metadata["id"]]
    return metadata


def _describe(made: Push, order: Order) -> str:
    number = f"version {made.version}" if made.version else "it"
    name = order.notebook.name
    return (
        f"Pushed: {made.kernel}, {number} runs as {made.key}: {made.url}\n`make kernels-status` "
        f"shows its state; when it has finished: `make kernels-pull NOTEBOOK={name}`."
    )
