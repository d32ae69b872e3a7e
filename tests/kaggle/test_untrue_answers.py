"""Kaggle takes a submission, answers with a failure, and lists it only some seconds later.

Whatever the answer says, the file is not sent again: the same command waits and finds it.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kaggle.desk import Desk, Done
from tests.kaggle.server import KaggleServer
from tests.kaggle.test_fault_matrix import assert_made_once
from tests.kaggle.world import CREATE, Fault

LATE, QUIET = 4.0, 6.0  # seconds; a look follows the answer sooner than that
ANSWERS = (
    "Deadline exceeded",
    "Resource not found: submission 41000001 is being processed",
    "Could not connect to upstream: Connection refused",
    "You have reached the daily submission limit",
)
GARBLED = "garbled"


def play(folder: Path, run: Path, params: dict[str, Any]) -> tuple[Desk, Done]:
    """Submit, with an answer that is not true."""
    shutil.copytree(run, folder / "run")
    server = KaggleServer()
    try:
        desk = Desk(folder, server, {"FASTSLOW_QUIET_SECONDS": str(QUIET)})
        answer = params["answer"]
        if answer == GARBLED:
            desk.use_https()
            fault = Fault(CREATE, GARBLED, times=1, counted=True)
        else:
            fault = Fault(CREATE, "503", times=1, counted=True, message=answer)
        desk.world.submissions.append(_earlier())
        desk.world.faults, desk.world.late = [fault], LATE
        return desk, desk.submit()
    finally:
        server.stop()


def _earlier() -> dict[str, Any]:
    # Or else Kaggle's counts would be zeros, which prove nothing.
    known = {"date": "2026-01-01T00:00:00Z", "status": "COMPLETE", "publicScore": "0.5"}
    return {"ref": 1, "description": "by hand", **known}


NO_CERTIFICATE = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes it")


@pytest.mark.parametrize("answer", [*ANSWERS, pytest.param(GARBLED, marks=NO_CERTIFICATE)])
def test_a_submission_that_is_listed_late_is_not_sent_twice(
    answer: str, story: tuple[Desk, Done]
) -> None:
    desk, done = story
    assert done.code == 0, done.words
    assert "Submitted: " in done.words
    assert_made_once(desk)
    assert desk.world.count(CREATE) == 1
