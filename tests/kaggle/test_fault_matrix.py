"""Every call of a submit fails in every way, once; the same command again puts it right.

After each cell: the submission was made exactly once, with the very bytes of the file, the ledger
says so, and exit codes and messages were right both times. Each cell has a server, a folder and
processes of its own.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kaggle.desk import SECRET, UNSET, Desk, Done
from tests.kaggle.server import KaggleServer
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
    """What happened in a cell."""

    desk: Desk
    first: Done
    second: Done


def play(folder: Path, run: Path, params: dict[str, Any]) -> Story:
    """Submit with the fault, take it away, and submit again."""
    column, kind, counted = params["cell"]
    call, first, before = COLUMNS[column]
    shutil.copytree(run, folder / "run")
    server = KaggleServer()
    try:
        desk = Desk(folder, server)
        if column == "sign in":
            key = {"KAGGLE_USERNAME": UNSET, "KAGGLE_KEY": UNSET}
            desk.more |= {"KAGGLE_API_TOKEN": SECRET, **key}
        if not kind.endswith("once"):
            desk.more["FASTSLOW_TRIES"] = "1"  # a second try meets the same fault
        if kind == "refused" and before == 0:
            server.refuse()
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
        server.accept_again()
        return Story(desk, done, desk.submit())
    finally:
        server.stop()


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


def assert_made_once(desk: Desk) -> None:
    """Kaggle has the file once, byte for byte, and the ledger says exactly that."""
    (made,) = (row for row in desk.world.submissions if "token" in row)  # none by hand
    meant = desk.run.submission.read_bytes()
    assert desk.world.uploads[made["token"]] == meant
    lines = desk.ledger.lines
    (line,) = (line for line in lines if line["ref"])
    assert line["state"] == "scored"
    assert line["ref"] == str(made["ref"])
    assert f"key={line['key']} " in made["description"]
    assert (line["public"], line["private"]) == desk.world.scores
    rest = [other["state"] for other in lines if other is not line]
    assert set(rest) <= {"failed"}
    kept = desk.folder / "submissions" / "sent" / line["key"] / "submission.csv"
    assert kept.read_bytes() == meant
