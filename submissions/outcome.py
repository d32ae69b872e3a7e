"""How a submit, a push or the upload of a bundle ended, and the exit code that says so."""

from dataclasses import dataclass

DONE, UNKNOWN, NOT_SCORED = 0, 3, 4  # exit codes; InputError makes it 2


@dataclass(frozen=True)
class Outcome:
    """How it ended."""

    code: int
    message: str
