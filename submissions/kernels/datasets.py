"""Upload a folder as a private dataset of the user, and wait until Kaggle has processed it.

A bundle, a zip of trained models, can be shared as such a dataset for use by a notebook. Nothing is
uploaded if the folder's content is already the dataset's newest version. An upload that fails
temporarily is repeated, even if it may have arrived, because an extra version does no harm.
"""

import re
import time
from pathlib import Path

from pydantic import BaseModel

from solution.sessions.record import BUNDLE
from solution.system.errors import InputError
from solution.system.files import checksum, write_json
from submissions.calls import WaitSettings, pause
from submissions.failures import DONE, Outcome
from submissions.kernels.calls import NOT_TAKEN, DatasetStatus, Kernels
from submissions.kernels.pushes import lock_records, read_push_record, records, write_push_record

METADATA = "dataset-metadata.json"
GONE = ("failed", "deleted")  # statuses of a dataset that cannot be used
PREFIX = "fast-or-slow-bundle-"
LONGEST = 50  # maximum length of a dataset's name


def write_metadata(folder: Path, user: str, slug: str) -> None:
    """Write the dataset-metadata.json that the kaggle CLI needs to upload the folder."""
    licenses = [{"name": "apache-2.0"}]
    values = {"id": f"{user}/{slug}", "title": slug, "licenses": licenses}
    write_json(values, folder / METADATA)


def await_ready(name: str, least: int, kernels: Kernels) -> int:
    """Wait until Kaggle has processed version `least` of the dataset `name`, or a later version.
    Returns the number of the processed version. Raises InputError if none is ready in time."""
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


class Shared(BaseModel):
    """The record of a bundle's last upload."""

    dataset: str  # USER/SLUG
    digest: str  # SHA-256 of bundle.zip
    version: int


def name_dataset(name: str) -> str:
    """Return Kaggle's name for a bundle's dataset; raise InputError if it is not valid there."""
    slug = PREFIX + name.removeprefix(PREFIX)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) or len(slug) > LONGEST:
        raise InputError(
            f"{name!r}: expected a name of small letters, digits and single hyphens between them, "
            f"at most {LONGEST - len(PREFIX)} of them. Give one with --name (make: AS=name)."
        )
    return slug


def provide(
    folder: Path, name: str, wanted: BaseModel, path: Path, note: str, kernels: Kernels
) -> tuple[int, bool]:
    """Make the folder's content the newest version of the dataset `name`, ready for use.

    `path` is the file with the record of the last upload. `wanted` is the record of an upload of
    this content, except the version's number. The folder is uploaded unless the last record equals
    `wanted` with the number of Kaggle's newest version. Afterwards the file contains `wanted` with
    the number of the version that is ready. `note`: the message of a new version.

    Returns the number of the version that is ready, and True if nothing had to be uploaded.

    Raises KaggleError if the upload failed, InputError if the version is not ready in time.
    """
    found, last = kernels.find_dataset(name), read_push_record(type(wanted), path)
    newest = wanted.model_copy(update={"version": found.version if found else 0})
    is_there = found is not None and found.status not in GONE and last == newest
    least = found.version if found else 0
    if not is_there:
        least = kernels.insist(lambda: _upload(folder, name, note, kernels))
        # write the record before the wait, so that an interrupted command need not upload again
        write_push_record(wanted.model_copy(update={"version": least}), path)
    version = await_ready(name, least, kernels)
    write_push_record(wanted.model_copy(update={"version": version}), path)
    return version, is_there


def _upload(folder: Path, name: str, note: str, kernels: Kernels) -> int:
    """Upload the folder; return the lowest number that the version can have."""
    found = kernels.find_dataset(name)  # ask at each try: a failed upload may have created it
    kernels.upload_dataset(folder, name, note, is_there=found is not None)
    return found.version + 1 if found else 1


def share(folder: Path, slug: str, settings: WaitSettings) -> Outcome:
    """Upload the bundle.zip in the folder as the dataset `slug`, unless it is already there. Raises
    InputError if the upload failed."""
    with lock_records(settings) as held:
        kernels = Kernels(settings, (held,))
        user, path = kernels.find_user(), records() / f"{slug}.json"
        write_metadata(folder, user, slug)
        wanted = Shared(dataset=f"{user}/{slug}", digest=checksum(folder / BUNDLE), version=0)
        note = f"sha256 {wanted.digest[:12]}"
        version, is_there = provide(folder, wanted.dataset, wanted, path, note, kernels)
        return Outcome(DONE, _describe(wanted.dataset, version, is_there=is_there))


def check_dataset_name(name: str) -> None:
    """Raise InputError if the name is neither a bundle's name nor OWNER/SLUG."""
    if "/" not in name:
        name_dataset(name)
    elif not re.fullmatch(r"[a-zA-Z0-9][\w-]*/[a-zA-Z0-9][\w-]*", name, re.ASCII):
        raise InputError(
            f"{name!r}: expected the name of a shared bundle, or OWNER/SLUG as in the address of "
            "its dataset. Give it with --bundle (make: BUNDLE=name)."
        )


def find_shared(name: str, user: str, kernels: Kernels) -> str:
    """Wait until a shared bundle's dataset is ready, and return its OWNER/SLUG. `name`: the name
    under which `user` shared the bundle, or OWNER/SLUG of any user. Raises InputError if there is
    no such dataset, or it is not ready in time."""
    dataset = name if "/" in name else f"{user}/{name_dataset(name)}"
    found = kernels.find_dataset(dataset)
    if found is None or found.status in GONE:
        raise InputError(
            f"{dataset}: there is no such dataset, or it may not be read with these credentials. "
            "`fastslow kernels share BUNDLE` makes one."
        )
    await_ready(dataset, found.version, kernels)
    return dataset


def _describe(dataset: str, version: int, *, is_there: bool) -> str:
    slug = dataset.partition("/")[2]
    return (
        f"{'Was shared already' if is_there else 'Shared'}: version {version}, private, of "
        f"https://www.kaggle.com/datasets/{dataset}\n`make kernels-push NOTEBOOK=4 "
        f"BUNDLE={slug.removeprefix(PREFIX)}` predicts the test split with it."
    )
