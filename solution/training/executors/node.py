"""What happens on a node of a cluster: the code is compared, the work unpacked once, and done."""

import os
import pickle
import platform
from dataclasses import dataclass
from functools import cache
from typing import Any

from solution.runs.fingerprint import fingerprint_code
from solution.runs.record import list_versions
from solution.system.errors import InputError
from solution.training.executors.base import Work
from solution.training.executors.local import limit_threads
from solution.training.executors.screen import Throttled

Message = tuple[int, tuple[Any, ...], dict[str, Any]]
_works: dict[str, Work] = {}  # of this process


@dataclass(frozen=True)
class Parcel:
    """What every task of a run comes with."""

    code: dict[str, str]  # of the driver
    work: Any  # a reference to the pickled work
    board: Any  # where reports go


class Board:
    """Keeps the reports of all tasks until they are taken."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def note(self, number: int, facts: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Take note of what a task reports."""
        self._messages.append((number, facts, more))

    def take(self) -> list[Message]:
        """All that were not taken yet."""
        taken, self._messages = self._messages, []
        return taken


@cache
def identify_code() -> dict[str, str]:
    """What decides predictions: the code and the libraries."""
    return {"code": fingerprint_code(), **list_versions()}


def do(box: list[Parcel], number: int, arguments: tuple[Any, ...]) -> Any:
    """Do a task; what the work returns.

    Raises InputError where this node has other code or other libraries than who asks.
    """
    (parcel,) = box
    _compare_code(parcel.code)
    limit_threads(max(1, int(os.environ.get("OMP_NUM_THREADS") or 1)))
    report = Throttled(lambda *facts, **more: parcel.board.note.remote(number, facts, more))
    report.begin()
    return _open(parcel)(*arguments, report)


def _compare_code(wanted: dict[str, str]) -> None:
    found = identify_code()
    different = [
        f"{name} {found.get(name)}, expected {value}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if different:
        raise InputError(
            f"{platform.node()}: has another version of this program ({'; '.join(different)}). "
            "Install the same on all nodes."
        )


def _open(parcel: Parcel) -> Work:
    """The work, unpacked once a process."""
    key = parcel.work.hex()
    if key not in _works:
        import ray

        _works.clear()  # of an earlier run
        _works[key] = pickle.loads(ray.get(parcel.work))  # noqa: S301 - made by the driver's own process
    return _works[key]
