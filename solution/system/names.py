"""Names that people type: which become folders and files, and what a misspelt one meant."""

import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from solution.system.errors import InputError

NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")  # no separator, nothing that is hidden, no ".."
MAX_NAME = 150  # bytes; a file system takes 255, and a number and a suffix follow


def make_safe(name: str) -> str:
    """At most MAX_NAME bytes of letters, digits and few signs; file systems count bytes."""
    safe = re.sub(r"[^\w.+-]+", "_", name).lstrip(".")
    return safe.encode(errors="replace")[:MAX_NAME].decode(errors="ignore") or "module"


def leads_out(name: str) -> bool:
    """Whether the name of a file, from a folder on, is of one outside that folder."""
    path = Path(name)
    return path.is_absolute() or ".." in path.parts


def check_text(path: Path) -> None:
    """Raise InputError where a path has bytes that are no text: tables are at no such place."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise InputError(
            f"{path}: its name is no text in {encoding}, as names of files are read here. Rename "
            "it, or choose another."
        ) from None


def check_name(name: str) -> str:
    """Returns the name; ValueError where it could lead anywhere but to a folder of its own."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"expected a name of letters, digits, _, . and - that begins with a letter, a digit "
            f"or _, found {name!r}"
        )
    return name


def check_ending(path: Path | None, *endings: str) -> None:
    """Raise InputError where a file that is still to be written has another ending."""
    if path is not None and path.suffix not in endings:
        raise InputError(f"{path}: expected a name that ends with {', '.join(endings)}.")


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence that begins with a space: the nearest known names; empty if none is near."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def match(names: Sequence[str], patterns: str) -> list[str]:
    """The names that patterns such as "layout_*,!*lightgbm*" choose; the last that fits decides.

    Raises InputError where none is chosen.
    """
    chosen: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        fitting = {name for name in names if fnmatchcase(name, pattern.removeprefix("!"))}
        chosen = chosen - fitting if pattern.startswith("!") else chosen | fitting
    if not chosen:
        raise InputError(f"{patterns!r} chooses nothing. There are {', '.join(names)}.")
    return [name for name in names if name in chosen]
