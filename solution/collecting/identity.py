"""What must be the same where a search or a collection goes on."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from solution.collecting.program import UNSEEDED
from solution.system.errors import InputError

LONGEST = 40  # characters of a value in a message
ADVICE = "Choose another --out, or add --replace."


def describe_machine() -> str:
    """The kind of its processor, and how many cores it has."""
    return f"{platform.machine()}, {psutil.cpu_count()} cores"


def check_identity(
    folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any], what: str
) -> None:
    """Raise InputError where what stands in a folder is of other things than is `wanted`.

    Args:
        what: such as a search.
    """
    other = [key for key in wanted if found.get(key) != wanted[key]]
    if other:
        reason = f"{UNSEEDED} " if "program" in other else ""
        raise InputError(
            f"{folder}: another {what} stands there; "
            + ", ".join(
                f"its {key} is {_spell(found.get(key))}, not {_spell(wanted[key])}" for key in other
            )
            + f". {reason}{ADVICE}"
        )


def _spell(value: object) -> str:
    """In a sentence; of a long hash its beginning."""
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
