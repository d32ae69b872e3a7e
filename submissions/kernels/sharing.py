"""Share a bundle: upload its zip as a private dataset of the user, for use by a notebook.

1. look: if the newest version of the dataset is this bundle, nothing is uploaded
2. upload it, as a new version if the dataset exists
3. write the record, and wait until Kaggle has processed it

If it is unknown whether an upload arrived, it is repeated: an extra version does no harm, an
incomplete one would.
"""

import re
from pathlib import Path

from pydantic import BaseModel

from solution.sessions.record import BUNDLE
from solution.system.errors import InputError
from solution.system.files import checksum
from submissions.kernels.calls import DatasetStatus, Kernels
from submissions.kernels.datasets import (
    GONE,
    UnknownUploadError,
    await_ready,
    is_newest,
    upload,
    write_metadata,
)
from submissions.kernels.pushes import (
    lock_records,
    read_record,
    records,
    write_record,
)
from submissions.outcome import DONE, UNKNOWN, Outcome
from submissions.settings import Settings

PREFIX = "fast-or-slow-bundle-"
LONGEST = 50  # maximum length of a dataset's name


class Shared(BaseModel):
    """The bundle of the last upload."""

    dataset: str  # USER/SLUG
    digest: str  # SHA-256 of the zip
    version: int


def name_dataset(name: str) -> str:
    """Return Kaggle's name for the dataset of the bundle `name`.

    Raises InputError if the name is not valid on Kaggle.
    """
    slug = PREFIX + name.removeprefix(PREFIX)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) or len(slug) > LONGEST:
        raise InputError(
            f"{name!r}: expected a name of small letters, digits and single hyphens between them, "
            f"at most {LONGEST - len(PREFIX)} of them. Give one with --name (make: AS=name)."
        )
    return slug


def share(folder: Path, slug: str, settings: Settings) -> Outcome:
    """Upload the bundle.zip in the folder as the dataset `slug`, unless it is already there.

    Raises InputError if the upload failed.
    """
    with lock_records(settings) as held:
        kernels = Kernels(settings, (held,))
        user, place = kernels.find_user(), records() / f"{slug}.json"
        write_metadata(folder, user, slug)
        wanted = Shared(dataset=f"{user}/{slug}", digest=checksum(folder / BUNDLE), version=0)
        found, last = kernels.find_dataset(wanted.dataset), read_record(Shared, place)
        is_there = last is not None and is_newest(last, wanted, found)
        if last is None or not is_there:
            try:
                last = _upload(folder, wanted, found, kernels)
            except UnknownUploadError as error:
                return Outcome(UNKNOWN, str(error))
            write_record(last, place)
        version = await_ready(last.dataset, last.version, kernels)
        write_record(last.model_copy(update={"version": version}), place)
        return Outcome(DONE, _describe(last.dataset, version, is_there=is_there))


def check_name(name: str) -> None:
    """Raise InputError if the name is neither a bundle's name nor OWNER/SLUG."""
    if "/" not in name:
        name_dataset(name)
    elif not re.fullmatch(r"[a-zA-Z0-9][\w-]*/[a-zA-Z0-9][\w-]*", name, re.ASCII):
        raise InputError(
            f"{name!r}: expected the name of a shared bundle, or OWNER/SLUG as in the address of "
            "its dataset. Give it with --bundle (make: BUNDLE=name)."
        )


def find_shared(name: str, user: str, kernels: Kernels) -> str:
    """Return OWNER/SLUG of a shared bundle that is ready.

    Args:
        name: as the `user` shared it, or OWNER/SLUG of any user; see check_name.

    Raises InputError if there is none.
    """
    dataset = name if "/" in name else f"{user}/{name_dataset(name)}"
    found = kernels.find_dataset(dataset)
    if found is None or found.status in GONE:
        raise InputError(
            f"{dataset}: there is no such dataset, or it may not be read with these credentials. "
            "`fastslow kernels share BUNDLE` makes one."
        )
    await_ready(dataset, found.version, kernels)
    return dataset


def _upload(folder: Path, wanted: Shared, found: DatasetStatus | None, kernels: Kernels) -> Shared:
    note = f"sha256 {wanted.digest[:12]}"
    version = upload(folder, wanted.dataset, note, found, kernels)
    return wanted.model_copy(update={"version": version})


def _describe(dataset: str, version: int, *, is_there: bool) -> str:
    slug = dataset.partition("/")[2]
    return (
        f"{'Is there already' if is_there else 'Shared'}: version {version}, private, of "
        f"https://www.kaggle.com/datasets/{dataset}\n`make kernels-push NOTEBOOK=4 "
        f"BUNDLE={slug.removeprefix(PREFIX)}` predicts the test split with it."
    )
