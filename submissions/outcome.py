"""The result of a submit, a push or the upload of a bundle, with its exit code."""

from dataclasses import dataclass

DONE, UNKNOWN, NOT_SCORED = 0, 3, 4  # exit codes; InputError makes it 2


@dataclass(frozen=True)
class Outcome:
    """An exit code and a message."""

    code: int
    message: str
