"""Check names of files and addresses of buckets that users type; suggest the right spelling."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from solution.system.errors import InputError

# a folder's name: no separator, not hidden, not ".."
NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")
# Paths that begin like an address are taken for one; users give such a local folder as ./NAME.
LIKE_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/|(s3|gs):", re.IGNORECASE)
# schemes of fsspec whose paths begin with a slash
WITHOUT_BUCKET = ("file", "local", "memory")
# by scheme: the command that downloads a folder, for messages
COPY = {"s3": "aws s3 sync", "gs": "gcloud storage rsync --recursive"}
MAX_NAME = 150  # maximum bytes; file systems allow 255, and a number and a suffix are added


def make_safe(name: str) -> str:
    """Return a valid file name: at most MAX_NAME bytes of letters, digits and the signs _.+-"""
    safe = re.sub(r"[^\w.+-]+", "_", name).lstrip(".")
    return safe.encode(errors="replace")[:MAX_NAME].decode(errors="ignore") or "module"


def leads_out(name: str) -> bool:
    """Return whether a file of this name could lie outside of the folder that it is written to."""
    steps = name.replace("\\", "/").split("/")
    is_absolute = name.startswith("/") or ":" in steps[0]  # for example C:, a Windows drive
    return not name or is_absolute or ".." in steps or "\\" in name or "\0" in name


def check_inside(name: str) -> str:
    """Return the relative path `name`; raise ValueError if it leads out of the folder."""
    if leads_out(name):
        raise ValueError(f"expected the name of a file inside its folder, found {name!r}")
    return name


def place_below(folder: Path, name: str, source: Path | str) -> Path:
    """Return the path of `name` below `folder`; safe for names from anybody. `source`: the file,
    list or server that the name comes from, for messages. Raises InputError if the path leads out
    of the folder, also through a link inside it."""
    if leads_out(name):
        raise InputError(f"{source}: refused, the name {name!r} leads out of the folder {folder}.")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{source}: refused, {name!r} leads out of {folder} through a link there.")
    return path


def check_text(path: Path) -> None:
    """Raise InputError if the path is not valid text, because polars cannot open it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise InputError(
            f"{path}: its name is not valid in {encoding}, as file names are read here. Rename it, "
            "or set PYTHONUTF8=1 if it is UTF-8."
        ) from None


def check_name(name: str) -> str:
    """Return the name; raise ValueError unless it is a valid name of one folder, and no path."""
    if not NAME.fullmatch(name) or len(name.encode()) > MAX_NAME:
        raise ValueError(
            f"expected a name of letters, digits, _, . and - that begins with a letter, a digit "
            f"or _, at most {MAX_NAME} bytes long, found {name[:MAX_NAME]!r}"
        )
    return name


def check_ending(path: Path | None, *endings: str) -> None:
    """Raise InputError if the path of an output file has none of the `endings`."""
    if path is not None and path.suffix not in endings:
        raise InputError(f"{path}: expected a name that ends with {', '.join(endings)}.")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the nearest known names; empty if none is near."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def match(names: Sequence[str], patterns: str) -> list[str]:
    """Return the names that match comma-separated patterns such as "layout_*,!*lightgbm*". A
    pattern with ! excludes names. For each name the last pattern that matches it decides. Raises
    InputError if none is chosen."""
    chosen: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        fitting = {name for name in names if fnmatchcase(name, pattern.removeprefix("!"))}
        chosen = chosen - fitting if pattern.startswith("!") else chosen | fitting
    if not chosen:
        raise InputError(f"{patterns!r} chooses nothing. There are {', '.join(names)}.")
    return [name for name in names if name in chosen]


def is_address(given: str) -> bool:
    """Return whether the text is the address of a folder in a bucket, not a local folder."""
    return re.match(r"[a-z][a-z0-9+.-]+://", given) is not None


def _split(given: str) -> tuple[str, str]:
    """Return the scheme and the rest of a text that is an address or begins like one. Both are ""
    for any other text. Raises InputError for an address with a password."""
    looks, rest = LIKE_ADDRESS.match(given), re.sub(r"^[^:]+:/*", "", given)
    if looks is None:
        return "", ""
    if "@" in rest.split("/")[0]:
        raise InputError(
            "The address of a bucket contains a password. Give credentials in the environment."
        )
    return (looks[1] or looks[2]).lower(), rest or "BUCKET/NAME"


def check_address(given: str, *, named: bool = False) -> str:
    """Return `given` if it is a local folder or a valid address; else raise InputError. A misspelt
    address would otherwise be taken for a local folder, and results silently written there.
    `named`: require a name below the bucket, because something is written under it."""
    scheme, rest = _split(given)
    bucket, *names = given.partition("://")[2].rstrip("/").split("/")
    is_whole = bool(bucket or scheme in WITHOUT_BUCKET) and bool(names or not named)
    if not scheme or (is_address(given) and is_whole and not {".", ".."} & {*names}):
        return given
    raise InputError(
        f"{given}: expected an address such as {scheme}://{rest if '/' in rest else 'BUCKET/NAME'},"
        " with the name of a bucket, without . and .., and, to write to it, with a name in the "
        f"bucket. If you mean a local folder, give ./{given}"
    )


def refuse_address(given: str, takers: str) -> str:
    """Return `given`, a local path; raise InputError if it is the address of a bucket. `takers`: a
    sentence of the message that names the commands which take an address."""
    scheme, rest = _split(given)
    if not scheme:
        return given
    copy = f"`{COPY[scheme]}" if scheme in COPY else "the program of its service, `copy"
    raise InputError(
        f"{given}: is an address, where a file or folder of this machine is expected. Fetch it "
        f"with {copy} {scheme}://{rest} FOLDER`. {takers}"
    )


def folder_of_variable(name: str, default: Path) -> Path:
    """Return the folder that the environment variable `name` gives, or `default`, in which ~ is the
    home folder. Raises InputError if the variable contains the address of a bucket."""
    given = os.environ.get(name)
    folder = Path(given) if given else default.expanduser()
    if LIKE_ADDRESS.match(str(folder)):
        raise InputError(f"{name} is {folder}: expected a folder of this machine. Set another one.")
    return folder


def cache_of_variable(variable: str, name: str) -> Path:
    """Return the folder that the environment variable `variable` gives, or the folder `name` among
    this program's in the user's cache folder. Raises InputError as folder_of_variable does."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return folder_of_variable(variable, caches / "fast-or-slow" / name)
