"""A submit that fails or is killed in every way, once; the same command again puts it right.

After each story: the submission was made exactly once, with the very bytes of the file, the ledger
says so, and exit codes and messages were right both times. Each has a server, a folder and
processes of its own.
"""

import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kaggle.desk import SECRET, UNSET, Desk, Done, assert_made_once, open_desk
from tests.kaggle.world import CREATE, INTROSPECT, LIMITS, LIST, PUT, START, Fault

# By column: the call, its occurrence in a submit, and the calls before it.
COLUMNS = {
    "sign in": (INTROSPECT, 1, 0), "look": (LIST, 1, 0), "limits": (LIMITS, 1, 1),
    "start": (START, 1, 2), "upload": (PUT, 1, 3), "create": (CREATE, 1, 4),
    "confirm": (LIST, 2, 5),
}  # fmt: skip
KINDS = ("401", "403", "404", "429 once", "429", "500 once", "500", "refused", "dropped", "lost",
         "hangs", "html", "wrong")  # fmt: skip
# What the CLI prints has the same name whichever call failed: the other columns have few kinds.
OTHERS = ("500", "refused", "lost", "wrong")
# What only matters where the server acts: it counted the submission, and then failed.
COUNTED = (("create", "500"), ("create", "hangs"), ("create", "html"), ("create", "wrong"))
# The second look is the same call as the first one: these are the kinds that differ there.
SECOND_LOOK = ("401", "429 once", "500", "refused", "lost", "hangs", "wrong")
UPLOAD = (*OTHERS, "dropped", "hangs")
BY_COLUMN = {"look": KINDS, "create": KINDS, "confirm": SECOND_LOOK, "upload": UPLOAD}
CELLS = [
    *((column, kind, kind == "lost") for column in COLUMNS
      for kind in BY_COLUMN.get(column, OTHERS)),
    *((column, kind, True) for column, kind in COUNTED),
]  # fmt: skip
WORDS = {
    "401": "did not accept the credentials", "403": "the rules are not accepted yet",
    "404": "does not find it", "429": "asks to slow down", "500": "server failed",
    "refused": "cannot be reached", "dropped": "the connection broke",
    "lost": "the connection broke", "hangs": "did not answer within",
    "html": "a web page instead of an answer",
}  # fmt: skip
UPLOADED, FAILED, UNKNOWN = 0, 2, 3
# The CLI does these three in one call, which has a limit of its own.
UPLOADING = ("start", "upload", "create")
# Seconds; what the call has to do before the fault takes half of that on a busy machine.
SHORT = "8"


def expect(column: str, kind: str, counted: bool) -> tuple[int, str]:
    """Exit code and words of the first submit."""
    submitted = (UPLOADED, "Submitted: ")
    if column == "sign in":  # the CLI takes such a token for an old one
        kind = "401" if kind in ("403", "404", "wrong") else kind
    if kind in ("429 once", "500 once") or (column, kind) == ("limits", "404"):
        return submitted  # nobody says how many are left
    if column == "confirm":
        return UNKNOWN, WORDS.get(kind, "lists 0 submissions and counts 1")
    if column == "create" and counted:
        return submitted
    if column in UPLOADING and kind == "refused":
        return UNKNOWN, "Whether it arrived is not known yet"
    if kind == "wrong":
        return {
            "look": (UNKNOWN, "lists 0 submissions and counts 1"),
            "limits": (FAILED, "no submission is left now"),
            "start": (FAILED, "Nothing was submitted"),
            "upload": (FAILED, "The uploaded file is missing"),
            "create": (FAILED, "Nothing was submitted"),
        }[column]
    if column == "upload":
        words = dict.fromkeys(("hangs", "dropped", "lost"), "did not answer within")
        words["html"] = "The uploaded file is missing"
        return FAILED, words.get(kind, "the file could not be uploaded")
    return FAILED, WORDS[kind]


def shorten(column: str, kind: str) -> dict[str, str]:
    """The limit of the call that meets the fault, where the fault is waited out."""
    # The CLI itself tries a broken upload again for minutes.
    broken = column == "upload" and kind in ("refused", "dropped", "lost")
    call = "UPLOAD" if column in UPLOADING else "CALL"
    return {f"FASTSLOW_{call}_SECONDS": SHORT} if kind == "hangs" or broken else {}


@dataclass(frozen=True)
class Story:
    """What happened to two submits."""

    desk: Desk
    first: Done
    second: Done
    moment: str = ""  # of a kill


def play_a_fault(folder: Path, run: Path, params: dict[str, Any]) -> Story:
    """Submit with the fault, take it away, and submit again."""
    column, kind, counted = params["cell"]
    call, first, before = COLUMNS[column]
    with open_desk(folder, run) as desk:
        if column == "sign in":
            key = {"KAGGLE_USERNAME": UNSET, "KAGGLE_KEY": UNSET}
            desk.more |= {"KAGGLE_API_TOKEN": SECRET, **key}
        if not kind.endswith("once"):
            desk.more["FASTSLOW_TRIES"] = "1"  # a second try meets the same fault
        if kind == "refused" and before == 0:
            desk.server.refuse()
        elif kind == "refused":
            desk.world.deaf_after = before
        else:
            name, _, once = kind.partition(" ")
            times = {"times": 1} if once else {}
            desk.world.faults = [Fault(call, name, first=first, counted=counted, **times)]
        usual, desk.more = desk.more, {**desk.more, **shorten(column, kind)}
        done = desk.submit()
        desk.more = usual
        desk.world.faults = []
        desk.world.deaf_after = None
        desk.server.accept_again()
        return Story(desk, done, desk.submit())


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0]}-{cell[1]}-{cell[2]}")
def test_a_fault(cell: tuple[str, str, bool], story: Story) -> None:
    code, words = expect(*cell)
    assert (story.first.code, words in story.first.words) == (code, True), story.first.words
    assert "Traceback" not in story.first.words + story.second.words
    if code == UPLOADED:
        assert story.second.code == FAILED
        assert "same file" in story.second.words
    else:
        assert story.second.code == UPLOADED, story.second.words
        assert "Submitted: " in story.second.words
    assert_made_once(story.desk)


KILLS = 8
CALLS = 6  # of a submit, up to the first look for its score
LONGEST_STEP = 0.5  # seconds between two calls, and between the last one and the end


def play_a_kill_at_any_moment(folder: Path, run: Path, params: dict[str, Any]) -> Story:
    """Kill a submit at a random moment after a random call; every other time all it started too."""
    chance = random.Random(params["seed"])
    calls, delay = chance.randint(0, CALLS), chance.uniform(0, LONGEST_STEP)
    with open_desk(folder, run) as desk:
        desk.world.pending = 10**9  # it waits for its score until it is killed
        running = desk.start(*desk.submit_arguments())
        while len(desk.world.calls) < calls and not running.ends_within(0.002):
            pass
        running.ends_within(delay)
        (os.killpg if params["seed"] % 2 else os.kill)(running.number, signal.SIGKILL)
        killed = running.finish()
        desk.world.pending = 0
        for row in desk.world.submissions:
            row["pending"] = 0
        return Story(desk, killed, desk.submit(), f"{delay:.3f} s after call {calls}")


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_kill_at_any_moment(seed: int, story: Story) -> None:
    assert story.first.code == -signal.SIGKILL, story.moment
    assert story.second.code == 0, f"{story.moment}: {story.second.words}"
    assert_made_once(story.desk)
    assert not list(story.desk.folder.rglob(".partial-*")), story.moment


LATE, QUIET = 4.0, 6.0  # seconds; a look follows the answer sooner than that
ANSWERS = (
    "Deadline exceeded",
    "Resource not found: submission 41000001 is being processed",
    "Could not connect to upstream: Connection refused",
    "You have reached the daily submission limit",
)


def play_what_is_listed_late_is_not_sent_twice(
    folder: Path, run: Path, params: dict[str, Any]
) -> tuple[Desk, Done]:
    """Kaggle takes it, answers with a failure, and lists it only some seconds later."""
    with open_desk(folder, run) as desk:
        desk.more["FASTSLOW_QUIET_SECONDS"] = str(QUIET)
        fault = Fault(CREATE, "503", times=1, counted=True, message=params["answer"])
        desk.add_earlier()
        desk.world.faults, desk.world.late = [fault], LATE
        return desk, desk.submit()


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_listed_late_is_not_sent_twice(answer: str, story: tuple[Desk, Done]) -> None:
    """Whatever the answer says: the same command waits and finds it."""
    desk, done = story
    assert done.code == 0, done.words
    assert "Submitted: " in done.words
    assert_made_once(desk)
    assert desk.world.count(CREATE) == 1
