"""Check addresses of folders in buckets (s3://BUCKET/NAME) that users type.

A misspelt address would be taken for a folder of this machine, and everything would be written
there without any message.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from solution.system.errors import InputError

ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]+://")
# Names like these are hardly ever local; a local folder with such a name is given as ./NAME.
LIKE_ONE = re.compile(r"^([a-z][a-z0-9+.-]+):/|^(s3|gs):", re.IGNORECASE)
WITHOUT_BUCKET = ("file", "local", "memory")  # schemes of fsspec whose paths begin with a slash
# variables with the server of s3:// addresses; the first that is set counts
SERVICES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
FETCH = {"s3": "aws s3 sync", "gs": "gcloud storage rsync --recursive"}


def is_address(given: str) -> bool:
    """Return whether the text is the address of a folder in a bucket, not a folder of this
    machine."""
    return ADDRESS.match(given) is not None


def check_address(given: str, *, named: bool = False) -> str:
    """Return `given` if it is a folder of this machine or a valid address.

    Args:
        named: require a name below the bucket, because something is written there.

    Raises InputError for an address with a password, without a bucket, or with . or .. in it, and
    for a text that is no address but looks like one.
    """
    scheme = _find_scheme(given)
    if scheme is None:
        return given
    if not is_address(given):
        right = f"{scheme}://{_find_path(given)}"
        raise InputError(
            f"{given}: looks like an address and is none. Write {right}, or ./{given} where a "
            "folder of this machine is meant."
        )
    bucket, *names = given.split("://", 1)[1].rstrip("/").split("/")
    if not bucket and scheme not in WITHOUT_BUCKET:
        raise InputError(
            f"{given}: expected {scheme}://BUCKET/NAME, found no bucket. Is a variable empty?"
        )
    _check_names(given, names)
    if named and not names:
        raise InputError(
            f"{given}: expected {scheme}://BUCKET/NAME, found a bucket alone, which may hold other "
            f"things. Give a name in it, such as {scheme}://{bucket}/mine."
        )
    return given


def refuse_address(given: str, takers: str) -> str:
    """Return `given`; raise InputError if it is an address or looks like one.

    Args:
        takers: for the message: the commands that accept an address.
    """
    scheme = _find_scheme(given)
    if scheme is None:
        return given
    fetch, address = FETCH.get(scheme), f"{scheme}://{_find_path(given)}"
    advice = (
        f"`{fetch} {address} FOLDER` fetches it, `{fetch} FOLDER {address}` sends what was written."
        if fetch
        else "Fetch it, or send what was written, with the program of its service."
    )
    raise InputError(
        f"{given}: is an address, where a file or folder of this machine is expected. {advice} "
        f"{takers}"
    )


def refuse_address_variable(name: str, folder: Path) -> Path:
    """Return the folder from the environment variable `name`; raise InputError for an address."""
    if LIKE_ONE.match(str(folder)):
        raise InputError(f"{name} is {folder}: expected a folder of this machine. Set another one.")
    return folder


def find_service(given: str) -> str:
    """Return the server of an s3:// address that the environment names; empty if it names none."""
    if not given.startswith("s3://"):
        return ""
    return next((os.environ[name].rstrip("/") for name in SERVICES if os.environ.get(name)), "")


def _find_scheme(given: str) -> str | None:
    """Return the scheme if the text is or looks like an address, else None.

    Raises InputError if it contains a password.
    """
    looks = LIKE_ONE.match(given)
    if looks is None:
        return None
    _refuse_secrets(given)
    return (looks[1] or looks[2]).lower()


def _check_names(given: str, names: Sequence[str]) -> None:
    if any(name in (".", "..") for name in names):
        raise InputError(
            f"{given}: has . or .. in it, which are no names in a bucket. Give the address itself."
        )


def _find_path(given: str) -> str:
    """Return what follows the scheme and any number of slashes."""
    return re.sub(r"^[^:]+:/*", "", given) or "BUCKET/NAME"


def _refuse_secrets(given: str) -> None:
    if "@" in _find_path(given).split("/", 1)[0]:
        raise InputError(
            "The address of a bucket holds a name or a password. Give them in the environment."
        )
