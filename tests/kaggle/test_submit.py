"""`fastslow submit` as a user sees it: what is sent, what is refused, and in which words."""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from solution.runs.fingerprint import fingerprint_code
from solution.system.files import locked, write_sealed
from submissions.ledger import edit_ledger
from tests.kaggle.place import SECRET, Place
from tests.kaggle.test_fault_matrix import assert_made_once
from tests.kaggle.world import CREATE, LIMITS, LIST, PUT, Fault


def test_a_submission_is_sent_confirmed_scored_and_traced(place: Place) -> None:
    place.world.pending = 2
    done = place.submit()
    assert done.code == 0, done.words
    assert all(fact in done.words for fact in ("0.654", "0.632"))
    assert max(map(len, done.stdout.splitlines()[:-2])) <= 80
    assert_made_once(place)
    (line,) = place.ledger.lines
    assert (line["recipe"], line["experiments"], line["data"]) == ("mine", "one", "da7a")
    assert 0 < float(line["oof_tile_xla"]) <= 1
    sent = place.folder / "submissions" / "sent" / line["key"]
    facts = json.loads((sent / "provenance.json").read_text())
    assert facts["recipe"]["members"] == {"one": 1.0}
    assert facts["run"]["settings"]["experiments"] == {"one": {}}
    assert f"{facts['scores']['mean']:.4f}" == line["oof_mean"]
    assert (sent / "scores.csv").read_bytes() == (place.folder / "run/scores.csv").read_bytes()
    # The same file again is refused without asking Kaggle; forced, it is sent again.
    calls = len(place.world.calls)
    again = place.submit()
    assert (again.code, len(place.world.calls)) == (2, calls)
    assert line["key"] in again.words
    assert "--force" in again.words
    assert place.submit("--force").code == 0
    assert len(place.world.submissions) == 2
    assert [other["state"] for other in place.ledger.lines] == ["scored", "scored"]


@pytest.mark.parametrize(("code", "state"), [("0123", "differs"), (None, "is the same")])
def test_the_ledger_names_the_commit_that_trained(
    place: Place, code: str | None, state: str
) -> None:
    commit = "1" * 40 + "-dirty"
    made = {"commit": commit, "code": code or fingerprint_code()}
    record = {"settings": place.run.record()["settings"], **made}
    write_sealed(record, place.run.folder / "run.json")
    done = place.submit()
    assert done.code == 0, done.words
    assert f"The run was made at commit {commit} and is merged at" in done.words
    assert f"The code that decides predictions {state}." in done.words
    (row,), (line,) = place.world.submissions, place.ledger.lines
    assert line["commit"] == "111111111111-dirty"
    assert " commit=111111111111-dirty " in row["description"]
    sent = place.folder / "submissions" / "sent" / line["key"]
    facts = json.loads((sent / "provenance.json").read_text())
    assert facts["trained"] == commit
    assert facts["commit"] not in ("", commit)


def test_a_dry_run_does_everything_but_the_upload(place: Place) -> None:
    done = place.submit("--dry-run")
    assert done.code == 0, done.words
    assert all(fact in done.words for fact in ("Nothing was", "key="))
    assert place.world.count(LIST) == 1
    assert place.world.count(PUT) == place.world.count(CREATE) == 0
    assert place.ledger.lines == []
    assert not (place.folder / "submissions" / "sent").exists()


@pytest.mark.parametrize("where", ["submissions", "submissions/sent", "run"])
def test_what_a_killed_submit_left_is_removed_by_the_next(place: Place, where: str) -> None:
    half = place.folder / where / ".partial-0123456789abcdef"
    (half / ".partial-fedcba9876543210").mkdir(parents=True)
    (half / "submission.csv").write_text("half of one")
    done = place.submit()
    assert done.code == 0, done.words
    assert not half.exists()


def test_two_submits_at_once_send_one_file_once(place: Place) -> None:
    started = [place.start(*place.submit_arguments()) for _ in range(2)]
    done = [one.finish() for one in started]
    codes = sorted(one.code for one in done)
    assert codes == [0, 2], [one.words for one in done]
    assert_made_once(place)


def test_a_run_that_another_process_merges_is_neither_sent_nor_merged(place: Place) -> None:
    with locked(place.run.folder, ""):
        tried = [place.submit(), place.call("ensemble", "run/mine.toml", "--run", "run")]
    for done in tried:
        assert done.code == 2
        assert "another process" in done.words
    assert place.world.calls == []
    assert not place.run.submission.exists()


def test_what_was_merged_is_sent_whatever_lies_in_the_run_by_then(place: Place) -> None:
    place.more["FASTSLOW_WAIT_SECONDS"] = "3"
    place.world.faults = [Fault(LIST, "500", times=1)]
    running = place.start(*place.submit_arguments())
    while not place.world.count(LIST):
        assert not running.ends_within(0.02)
    merged = {path.name: path.read_bytes() for path in (place.run.submission, place.run.scores)}
    for name in merged:
        (place.run.folder / name).write_text("of another recipe")
    done = running.finish()
    assert done.code == 0, done.words
    (made,), (line,) = place.world.submissions, place.ledger.lines
    assert place.world.uploads[made["token"]] == merged["submission.csv"]
    sent = place.folder / "submissions" / "sent" / line["key"]
    assert {name: (sent / name).read_bytes() for name in merged} == merged


def test_a_submit_that_does_not_end_keeps_others_out(place: Place) -> None:
    place.world.faults = [Fault(PUT, "hangs")]
    place.more["FASTSLOW_LOCK_SECONDS"] = "0.3"
    running = place.start(*place.submit_arguments())
    while not place.world.count(PUT):
        assert not running.ends_within(0.02)
    other = place.submit()
    assert other.code == 2
    assert "another process" in other.words
    assert f"process {running.number}" in other.words
    os.kill(running.number, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL


@pytest.mark.parametrize(
    ("status", "pending", "code", "words"),
    [
        ("ERROR", 0, 4, "Kaggle could not score it"),
        ("COMPLETE", 1000, 0, "It has no score yet; `make scores` fetches it."),
    ],
)
def test_a_score_that_does_not_come(
    place: Place, status: str, pending: int, code: int, words: str
) -> None:
    place.world.status, place.world.pending = status, pending
    place.more["FASTSLOW_SCORE_SECONDS"] = "0.3"
    done = place.submit()
    assert (done.code, words in done.words) == (code, True), done.words
    assert place.ledger.lines[0]["state"] == ("error" if code else "pending")
    place.world.submissions[0] |= {"pending": 0}
    again = place.submit()  # waits for the score once more, and sends nothing
    assert len(place.world.submissions) == 1
    assert again.code == (2 if code else 0)


@pytest.mark.parametrize("status", ["404", "405"])
def test_without_an_answer_how_many_are_left_it_is_sent(place: Place, status: str) -> None:
    place.world.faults = [Fault(LIMITS, status, message="Not Found" if status == "404" else "")]
    seen = place.call("doctor")
    assert (seen.code, "note Submissions" in seen.words) == (0, True), seen.stdout
    done = place.submit()
    assert done.code == 0, done.words
    assert "how many" in done.words
    assert_made_once(place)


@pytest.mark.parametrize("code", [400, 403])
def test_the_daily_allowance_is_used_up(place: Place, code: int) -> None:
    said = (
        "Submission not allowed: Your team has used its daily Submission allowance (5) today, "
        "please try again tomorrow UTC (4.2 hours from now)."
    )
    refuse = place.world.on_CreateSubmission
    place.world.refusal = said
    place.world.on_CreateSubmission = lambda body: {**refuse(body), "code": code}  # type: ignore[method-assign]
    done = place.submit()
    assert done.code == 2
    assert "no submission" in done.words
    assert "next day" in done.words
    assert said in done.words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Submission limit reached: 5 submissions per day", "no submission"),
        ("This competition is no longer accepting submissions", "no submissions"),
        ("Permission 'competitions.participate' was denied", "Accept the"),
    ],
)
def test_what_kaggle_refuses_is_said_in_clear_words(place: Place, message: str, words: str) -> None:
    place.world.refusal = message
    done = place.submit()
    assert done.code == 2
    assert words in done.words
    assert message in done.words
    assert [line["state"] for line in place.ledger.lines] == ["failed"]


def test_a_file_that_another_clone_sent_is_refused(place: Place) -> None:
    assert place.submit().code == 0
    (place.folder / "submissions" / "ledger.csv").unlink()
    done = place.submit()
    assert done.code == 2
    assert all(fact in done.words for fact in ("same file", "41000000"))
    assert len(place.world.submissions) == 1


def test_an_empty_list_of_what_kaggle_counts_is_no_list(place: Place) -> None:
    assert place.submit().code == 0
    (place.folder / "submissions" / "ledger.csv").unlink()
    place.world.faults = [Fault(LIST, "wrong")]
    done = place.submit()
    assert done.code == 2
    assert all(fact in done.words for fact in ("no submission", "counts 1"))
    assert len(place.world.submissions) == 1


def test_a_short_page_of_many_submissions_still_proves_what_is_missing(place: Place) -> None:
    """The list is cut, so it has less than Kaggle counts, but it reaches back far enough."""
    old = {"date": "2026-01-01T00:00:00Z", "status": "COMPLETE", "publicScore": "0.5"}
    rows = [{"ref": ref, "description": "by hand", **old} for ref in range(1, 31)]
    place.world.submissions, place.world.page_size, place.world.allowed = rows, 20, 100
    place.world.faults = [Fault(CREATE, "500", times=1)]
    assert place.submit().code == 0
    assert len(place.world.submissions) == 31
    assert {line["state"] for line in place.ledger.lines} == {"failed", "scored"}
    assert len(place.ledger.lines) == 2  # of one second, in any order


def test_a_run_on_other_data_is_not_sent(place: Place) -> None:
    graphs = place.run.graphs
    sample = place.folder / "run" / "sample_submission.csv"
    sample.write_text("ID,TopConfigs\ntile:xla:test0,0;1;2;3;4\n", encoding="utf-8")
    assert graphs.is_file()
    done = place.submit()
    assert done.code == 2
    assert all(fact in done.words for fact in ("tile:xla 1", "844"))
    assert place.world.calls == []


def test_lines_and_columns_of_others_stay(place: Place) -> None:
    path = place.folder / "submissions" / "ledger.csv"
    path.parent.mkdir()
    path.write_text('who,key,notes\nme,,"tried\nby hand"\nyou,2020-x,\n', encoding="utf-8")
    writer = threading.Thread(target=lambda: _write_meanwhile(path))
    writer.start()
    assert place.submit().code == 0
    writer.join()
    lines = {line["who"]: line for line in place.ledger.lines}
    assert lines["me"]["notes"] == "tried\nby hand"
    assert lines["you"]["key"] == "2020-x"
    assert lines["meanwhile"]["key"] == "z"
    assert lines[""]["state"] == "scored"


def _write_meanwhile(path: Path) -> None:
    with edit_ledger(path) as ledger:
        ledger.put("z", who="meanwhile")


def test_no_secret_is_left_anywhere(place: Place) -> None:
    """Planted in every place that the CLI reads; searched for in all that is written and shown."""
    home = place.folder / "home" / ".kaggle"
    home.mkdir(parents=True)
    (home / "kaggle.json").write_text(json.dumps({"username": "u", "key": SECRET + "file"}))
    (home / "access_token").write_text(SECRET + "token")
    place.more |= {"VERBOSE": "1", "VERBOSE_OUTPUT": "1", "KAGGLE_API_TOKEN": SECRET + "env"}
    place.world.faults = [Fault(CREATE, "html", times=1)]
    place.world.refusal = f"this key is wrong: {SECRET}env"
    shown = [place.submit()]
    place.world.refusal = ""
    running = place.start(*place.submit_arguments())
    seen: set[str] = set()
    while not running.ends_within(0.05):
        listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True)
        seen |= set(listed.stdout.splitlines())
    shown += [running.finish(), place.call("scores"), place.call("doctor")]
    assert any("competitions submit" in arguments for arguments in seen)
    assert shown[1].code == 0, shown[1].words
    texts = [*seen, *(one.words for one in shown), json.dumps(place.world.submissions)]
    for path in place.folder.rglob("*"):
        if path.is_file() and not path.is_relative_to(home):
            texts.append(path.read_bytes().decode(errors="replace"))
    assert not [text for text in texts if SECRET in text]
    assert "KAGGLE_API_TOKEN" in shown[3].words
    assert "Bearer" in place.world.schemes
