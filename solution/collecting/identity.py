"""Check that a search or collection is resumed with the same program, machine and settings."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from solution.programs.program import UNSEEDED
from solution.system.errors import InputError

LONGEST = 40  # maximum number of characters of a value in a message
ADVICE = "Choose another --out, or add --replace."


def describe_machine() -> str:
    """Return the architecture of this machine's processor, and its number of cores."""
    return f"{platform.machine()}, {psutil.cpu_count()} cores"


def check_identity(
    folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any], what: str
) -> None:
    """Raise InputError if the identity in a folder, `found` (program, machine, settings), differs
    from the identity `wanted`. `what`: the kind of work for the message, such as "search"."""
    other = [key for key in wanted if found.get(key) != wanted[key]]
    if other:
        reason = f"{UNSEEDED} " if "program" in other else ""
        raise InputError(
            f"{folder}: has another {what}: "
            + ", ".join(
                f"its {key} is {_spell(found.get(key))}, not {_spell(wanted[key])}" for key in other
            )
            + f". {reason}{ADVICE}"
        )


def _spell(value: object) -> str:
    """Format a value for a message; a long value is cut."""
    text = "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
