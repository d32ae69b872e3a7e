"""Upload a folder as a private dataset of the user, and wait until Kaggle has processed it."""

import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from solution.system.errors import InputError
from solution.system.files import write_json
from submissions.calls import pause
from submissions.failures import KaggleError
from submissions.kernels.calls import NOT_TAKEN, DatasetStatus, Kernels

METADATA = "dataset-metadata.json"
GONE = ("failed", "deleted")


class UnknownUploadError(KaggleError):
    """It is not known yet whether a version of a dataset arrived."""


def is_newest(last: BaseModel | None, wanted: BaseModel, found: DatasetStatus | None) -> bool:
    """Return whether the wanted content was uploaded last and is Kaggle's newest version.

    Kaggle may still be processing it.
    """
    return (
        found is not None
        and found.status not in GONE
        and last == wanted.model_copy(update={"version": found.version})
    )


def write_metadata(folder: Path, user: str, slug: str) -> None:
    """Write dataset-metadata.json for the CLI."""
    values: dict[str, Any] = {
        "id": f"{user}/{slug}",
        "title": slug,
        "licenses": [{"name": "apache-2.0"}],
    }
    write_json(values, folder / METADATA)


def upload(
    folder: Path, name: str, note: str, found: DatasetStatus | None, kernels: Kernels
) -> int:
    """Upload until a version after the `found` one exists; return the lowest possible number of it.

    If the answer was lost, Kaggle's list decides. A version that lacks a file does not count.

    Raises KaggleError if it did not arrive, UnknownUploadError if Kaggle could not be asked.
    """
    settings, failure = kernels.settings, None
    wait, before = settings.wait_seconds, found.version if found else 0
    for left in reversed(range(settings.tries + 1)):
        if failure is not None:
            found = _look(name, failure, kernels)
            if failure.kind.undecided and found is not None and found.version > before:
                return before + 1
            if not left or not failure.kind.passing:
                raise failure
            pause(wait, "The dataset did not arrive, trying again soon")
            wait *= 2
        before = found.version if found else before
        try:
            kernels.upload_dataset(folder, name, note, is_there=found is not None)
            return before + 1
        except KaggleError as error:
            failure = error
    raise AssertionError("unreachable")


def _look(name: str, failure: KaggleError, kernels: Kernels) -> DatasetStatus | None:
    try:
        return kernels.find_dataset(name)
    except KaggleError as error:
        if not failure.kind.undecided:
            raise
        raise UnknownUploadError(
            failure.kind,
            f"{failure} Whether the dataset {name} arrived is not known, because the look failed: "
            f"{error} Run the same command again: another version does no harm.",
        ) from error


def await_ready(name: str, least: int, kernels: Kernels) -> int:
    """Wait until Kaggle has processed version `least` or a later one; return its number.

    Raises InputError if it is not ready in time.
    """
    settings = kernels.settings
    deadline, wait = time.monotonic() + settings.ready_seconds, settings.poll_seconds
    while True:
        found = kernels.find_dataset(name) or DatasetStatus()
        if found.status == "ready" and found.version >= least:
            return found.version
        if found.status in GONE:
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
