"""Names that people type: which become folders of a run, and what a misspelt one meant."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")  # no separator, nothing that is hidden, no ".."


def check_name(name: str) -> str:
    """Returns the name; ValueError where it could lead anywhere but to a folder of its own."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"expected a name of letters, digits, _, . and - that begins with a letter, a digit "
            f"or _, found {name!r}"
        )
    return name


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence that begins with a space: the nearest known names; empty if none is near."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""
