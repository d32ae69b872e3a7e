"""`fastslow submit` as a user sees it: what is sent, what is refused, and in which words."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from solution.runs.fingerprint import fingerprint_code
from solution.system.files import locked, write_sealed
from submissions.ledger import edit_ledger
from submissions.provenance import SourceTree, describe_code
from tests.conftest import REPOSITORY
from tests.kaggle.desk import SECRET, UNSET, Desk, assert_made_once, check
from tests.kaggle.test_data_command import FILES, make_archive
from tests.kaggle.world import CREATE, LIMITS, LIST, PUT, Fault
from tests.test_readme import COMMANDS


def test_a_submission_is_sent_confirmed_scored_and_traced(desk: Desk) -> None:
    desk.world.pending = 2
    done = check(desk.submit(), 0, "0.654", "0.632")
    assert max(map(len, done.stdout.splitlines()[:-2])) <= 80
    assert_made_once(desk)
    (line,) = desk.ledger.lines
    assert (line["recipe"], line["experiments"], line["data"]) == ("mine", "one", "da7a")
    assert 0 < float(line["oof_tile_xla"]) <= 1
    sent = desk.folder / "submissions" / "sent" / line["key"]
    facts = json.loads((sent / "provenance.json").read_text())
    assert facts["recipe"]["members"] == {"one": 1.0}
    assert facts["run"]["settings"]["experiments"] == {"one": {}}
    assert f"{facts['scores']['mean']:.4f}" == line["oof_mean"]
    assert (sent / "scores.csv").read_bytes() == (desk.folder / "run/scores.csv").read_bytes()
    # The same file again is refused without asking Kaggle; forced, it is sent again.
    calls = len(desk.world.calls)
    again = desk.submit()
    assert (again.code, len(desk.world.calls)) == (2, calls)
    assert line["key"] in again.words
    assert "--force" in again.words
    assert desk.submit("--force").code == 0
    assert len(desk.world.submissions) == 2
    assert [other["state"] for other in desk.ledger.lines] == ["scored", "scored"]


def test_members_that_the_run_lacks_are_named_and_not_recorded(desk: Desk) -> None:
    (desk.run.folder / "mine.toml").write_text(
        'allow_missing = ["members"]\n[members]\none = 1.0\ntwo = 4.0\nlayout_three = 5.0\n'
    )
    done = check(desk.submit(), 0, "two (80% of the weight in tile:xla)")
    assert "two, layout_three (90% of the weight in layout:xla:default" in done.words
    (line,) = desk.ledger.lines
    assert line["experiments"] == "one"
    sent = desk.folder / "submissions" / "sent" / line["key"]
    facts = json.loads((sent / "provenance.json").read_text())
    assert facts["experiments"] == ["one"]
    assert {*facts["recipe"]["members"]} == {"one", "two", "layout_three"}


@pytest.mark.parametrize(("code", "state"), [("0123", "differs"), (None, "is the same")])
def test_the_ledger_names_the_commit_that_trained(desk: Desk, code: str | None, state: str) -> None:
    commit = "1" * 40 + "-dirty"
    made = {"commit": commit, "code": code or fingerprint_code()}
    record = {"settings": desk.run.record()["settings"], **made}
    write_sealed(record, desk.run.folder / "run.json")
    made_at = f"The run was made at commit {commit} and is merged at"
    done = check(desk.submit(), 0, made_at, f"The code that decides predictions {state}.")
    assert "The ledger names 111111111111-dirty." in done.words
    (row,), (line,) = desk.world.submissions, desk.ledger.lines
    assert line["commit"] == "111111111111-dirty"
    assert " commit=111111111111-dirty " in row["description"]
    sent = desk.folder / "submissions" / "sent" / line["key"]
    facts = json.loads((sent / "provenance.json").read_text())
    assert facts["trained"] == commit
    assert facts["commit"] not in ("", commit)


def test_a_commit_with_other_changes_is_called_one_commit(desk: Desk) -> None:
    here = SourceTree("2" * 40, ("changed.py",), "a difference")
    settings = desk.run.record()["settings"]
    for suffix, code in (("", fingerprint_code()), ("-dirty", "0123")):
        record = {"settings": settings, "commit": here.commit + suffix, "code": code}
        write_sealed(record, desk.run.folder / "run.json")
        said = describe_code(desk.run, here)
        assert said.count(here.commit) == 1 and "uncommitted" in said
        assert "The ledger names 222222222222-dirty." in said


def test_a_dry_run_does_everything_but_the_upload(desk: Desk) -> None:
    check(desk.submit("--dry-run"), 0, "Nothing was", "key=")
    assert desk.world.count(LIST) == 1
    assert desk.world.count(PUT) == desk.world.count(CREATE) == 0
    assert desk.ledger.lines == []
    assert not (desk.folder / "submissions" / "sent").exists()


def test_a_quick_look_is_sent_only_if_it_is_forced(desk: Desk) -> None:
    write_sealed({**desk.run.record(), "quick": True}, desk.run.folder / "run.json")
    check(desk.submit(), 2, "quick look", "--force")
    assert desk.world.calls == []
    check(desk.submit("--dry-run"), 0, "quick look", "would be")
    assert desk.world.count(CREATE) == 0
    check(desk.submit("--force"))
    assert_made_once(desk)


def test_what_a_killed_submit_left_is_removed_by_the_next(desk: Desk) -> None:
    left = [desk.folder / where / ".partial-0123456789abcdef"
            for where in ("submissions", "submissions/sent", "run")]  # fmt: skip
    for half in left:
        (half / ".partial-fedcba9876543210").mkdir(parents=True)
        (half / "submission.csv").write_text("half of one")
    check(desk.submit())
    assert not [half for half in left if half.exists()]


def test_two_submits_at_once_send_one_file_once(desk: Desk) -> None:
    started = [desk.start(*desk.submit_arguments()) for _ in range(2)]
    done = [one.finish() for one in started]
    codes = sorted(one.code for one in done)
    assert codes == [0, 2], [one.words for one in done]
    assert_made_once(desk)


def test_a_run_that_another_process_merges_is_neither_sent_nor_merged(desk: Desk) -> None:
    with locked(desk.run.folder, ""):
        tried = [desk.submit(), desk.call("ensemble", "run/mine.toml", "--run", "run")]
    for done in tried:
        assert done.code == 2
        assert "another process" in done.words
    assert desk.world.calls == []
    assert not desk.run.submission.exists()


def test_what_was_merged_is_sent_whatever_lies_in_the_run_by_then(desk: Desk) -> None:
    desk.more["FASTSLOW_WAIT_SECONDS"] = "3"
    desk.world.faults = [Fault(LIST, "500", times=1)]
    running = desk.start_until(LIST)
    merged = {path.name: path.read_bytes() for path in (desk.run.submission, desk.run.scores)}
    for name in merged:
        (desk.run.folder / name).write_text("of another recipe")
    check(running.finish())
    (made,), (line,) = desk.world.submissions, desk.ledger.lines
    assert desk.world.uploads[made["token"]] == merged["submission.csv"]
    sent = desk.folder / "submissions" / "sent" / line["key"]
    assert {name: (sent / name).read_bytes() for name in merged} == merged


def test_a_submit_that_does_not_end_keeps_others_out(desk: Desk) -> None:
    desk.world.faults = [Fault(PUT, "hangs")]
    desk.more["FASTSLOW_LOCK_SECONDS"] = "0.3"
    running = desk.start_until(PUT)
    check(desk.submit(), 2, "another process", f"process {running.number}")
    os.kill(running.number, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL


@pytest.mark.parametrize(("status", "pending", "code", "words"), [
    ("ERROR", 0, 4, "Kaggle could not score it"),
    ("COMPLETE", 1000, 0, "It has no score yet; `make scores` fetches it."),
])  # fmt: skip
def test_a_score_that_is_late(desk: Desk, status: str, pending: int, code: int, words: str) -> None:
    desk.world.status, desk.world.pending = status, pending
    desk.more["FASTSLOW_SCORE_SECONDS"] = "0.3"
    check(desk.submit(), code, words)
    assert desk.ledger.lines[0]["state"] == ("error" if code else "pending")
    desk.world.submissions[0] |= {"pending": 0}
    again = desk.submit()  # waits for the score once more, and sends nothing
    assert len(desk.world.submissions) == 1
    assert again.code == (2 if code else 0)


@pytest.mark.parametrize("status", ["404", "405"])
def test_without_an_answer_how_many_are_left_it_is_sent(desk: Desk, status: str) -> None:
    desk.world.faults = [Fault(LIMITS, status, message="Not Found" if status == "404" else "")]
    seen = desk.call("doctor")
    assert (seen.code, "note Submissions" in seen.words) == (0, True), seen.stdout
    check(desk.submit(), 0, "how many")
    assert_made_once(desk)


@pytest.mark.parametrize("code", [400, 403])
def test_the_daily_allowance_is_used_up(desk: Desk, code: int) -> None:
    said = (
        "Submission not allowed: Your team has used its daily Submission allowance (5) today, "
        "please try again tomorrow UTC (4.2 hours from now)."
    )
    refuse = desk.world.on_CreateSubmission
    desk.world.refusal = said
    desk.world.on_CreateSubmission = lambda body: {**refuse(body), "code": code}  # type: ignore[method-assign]
    check(desk.submit(), 2, "no submission", "next day", said)


def test_a_file_that_another_clone_sent_is_refused(desk: Desk) -> None:
    assert desk.submit().code == 0
    (desk.ledger_path).unlink()
    check(desk.submit(), 2, "same file", "41000000")
    assert len(desk.world.submissions) == 1


def test_a_short_page_of_many_submissions_still_proves_what_is_missing(desk: Desk) -> None:
    """The list is cut, so it has less than Kaggle counts, but it reaches back far enough."""
    old = {"date": "2026-01-01T00:00:00Z", "status": "COMPLETE", "publicScore": "0.5"}
    rows = [{"ref": ref, "description": "by hand", **old} for ref in range(1, 31)]
    desk.world.submissions, desk.world.page_size, desk.world.allowed = rows, 20, 100
    desk.world.faults = [Fault(CREATE, "500", times=1)]
    assert desk.submit().code == 0
    assert len(desk.world.submissions) == 31
    assert {line["state"] for line in desk.ledger.lines} == {"failed", "scored"}
    assert len(desk.ledger.lines) == 2  # of one second, in any order


def test_a_run_on_other_data_is_not_sent(desk: Desk) -> None:
    graphs = desk.run.graphs
    sample = desk.folder / "run" / "sample_submission.csv"
    sample.write_text("ID,TopConfigs\ntile:xla:test0,0;1;2;3;4\n", encoding="utf-8")
    assert graphs.is_file()
    check(desk.submit(), 2, "tile:xla 1", "844")
    assert desk.world.calls == []


def test_lines_and_columns_of_others_stay(desk: Desk) -> None:
    path = desk.write_ledger('who,key,notes\nme,,"tried\nby hand"\nyou,2020-x,\n')
    writer = threading.Thread(target=lambda: _write_meanwhile(path))
    writer.start()
    assert desk.submit().code == 0
    writer.join()
    lines = {line["who"]: line for line in desk.ledger.lines}
    assert lines["me"]["notes"] == "tried\nby hand"
    assert lines["you"]["key"] == "2020-x"
    assert lines["meanwhile"]["key"] == "z"
    assert lines[""]["state"] == "scored"


def _write_meanwhile(path: Path) -> None:
    with edit_ledger(path) as ledger:
        ledger.put("z", who="meanwhile")


def test_no_secret_is_left_anywhere(desk: Desk) -> None:
    """Planted everywhere that the CLI reads; searched for in all that is written and shown."""
    home = desk.folder / "home" / ".kaggle"
    home.mkdir(parents=True)
    (home / "kaggle.json").write_text(json.dumps({"username": "u", "key": SECRET + "file"}))
    (home / "access_token").write_text(SECRET + "token")
    desk.more |= {"VERBOSE": "1", "VERBOSE_OUTPUT": "1", "KAGGLE_API_TOKEN": SECRET + "env"}
    desk.world.faults = [Fault(CREATE, "html", times=1)]
    desk.world.refusal = f"this key is wrong: {SECRET}env"
    shown = [desk.submit()]
    desk.world.refusal = ""
    running = desk.start(*desk.submit_arguments())
    seen: set[str] = set()
    while not running.ends_within(0.05):
        listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True)
        seen |= set(listed.stdout.splitlines())
    shown += [running.finish(), desk.call("scores"), desk.call("doctor")]
    assert any("competitions submit" in arguments for arguments in seen)
    assert shown[1].code == 0, shown[1].words
    texts = [*seen, *(one.words for one in shown), json.dumps(desk.world.submissions)]
    for path in desk.folder.rglob("*"):
        if path.is_file() and not path.is_relative_to(home):
            texts.append(path.read_bytes().decode(errors="replace"))
    assert not [text for text in texts if SECRET in text]
    assert "KAGGLE_API_TOKEN" in shown[3].words
    assert "Bearer" in desk.world.schemes


TALKING = {"data", "submit", "scores", "leaderboard", "doctor"}


def run_shell(desk: Desk, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, env=desk.environment(), capture_output=True, text=True, timeout=300
    )


def test_the_commands_of_the_readme_talk_to_kaggle(desk: Desk) -> None:
    """In their order, on the data and the run of this test."""
    desk.world.files = dict(FILES)
    desk.world.archive = make_archive(list(FILES.items()))
    commands = [words for words in COMMANDS if words[1] in TALKING]
    assert {words[1] for words in commands} == TALKING
    data, run, sent = desk.folder / "data", desk.folder / "run", False
    for words in commands:
        command = [f"RUN={run}" if word.startswith("RUN=runs/") else word for word in words]
        if words[1] == "data":
            shutil.rmtree(data, ignore_errors=True)
            command.append(f"DATA={data}")
        if words[0] == "make":  # and never install anything from inside of a test
            command[1:1] = ["--old-file=.venv/.installed"]
        if words[1] == "submit":
            command.append("DIRTY=1")
        done = run_shell(desk, command, REPOSITORY)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"
        sent = sent or (words[1] == "submit" and words[-1] != "DRY_RUN=1")
        assert len(desk.world.submissions) == sent


GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")


def clone_working_tree(clone: Path) -> None:
    """A clone with the code of the working tree, committed there."""
    subprocess.run([*GIT, "clone", "--quiet", REPOSITORY, clone], check=True)
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in names:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_file():
            shutil.copyfile(REPOSITORY / name, clone / name)
    subprocess.run([*GIT, "add", "--all"], cwd=clone, check=True)
    subprocess.run([*GIT, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=clone, check=True)


def test_a_clone_with_changes_is_refused_or_recorded(desk: Desk) -> None:
    clone = desk.folder / "clone"
    clone_working_tree(clone)
    desk.more |= {"PYTHONPATH": str(clone), "FASTSLOW_SUBMISSIONS": str(clone / "submissions")}
    desk.more["FASTSLOW_KAGGLE"] = UNSET  # no fork has another PYTHONPATH than ours
    desk.more |= {"GIT_EXTERNAL_DIFF": "true"}  # what people set to look at differences
    run = desk.folder / "run"
    command = [sys.executable, "-m", "solution.cli", "submit", f"{run}/mine.toml"]
    command += ["--run", str(run)]
    changed = clone / "solution" / "system" / "memory.py"
    changed.write_text(changed.read_text() + f"# changed by {SECRET}\n")
    (clone / "my_model.py").write_text("mine = 1\n")
    tried = run_shell(desk, [*command, "--dry-run"], clone)
    assert tried.returncode == 0, tried.stderr
    assert "solution/system/memory.py" in tried.stdout
    assert "five: 0." in tried.stdout
    assert "nothing_001" not in tried.stdout  # the whole table is that of `fastslow ensemble`
    asked = len(desk.world.calls)  # a dry run only looks
    refused = run_shell(desk, command, clone)
    assert refused.returncode == 2
    changes = ("2 files", "solution/system/memory.py", "my_model.py")
    assert all(fact in refused.stderr for fact in changes)
    assert len(desk.world.calls) == asked
    done = run_shell(desk, [*command, "--allow-dirty"], clone)
    assert done.returncode == 0, done.stdout + done.stderr
    (sent,) = (clone / "submissions" / "sent").iterdir()
    difference = (sent / "uncommitted.diff").read_text()
    assert "+# changed by ***" in difference
    assert "+mine = 1" in difference
    subprocess.run([*GIT, "checkout", "--quiet", "solution"], cwd=clone, check=True)
    (clone / "my_model.py").unlink()
    clean = run_shell(desk, [*command, "--force"], clone)
    assert clean.returncode == 0, "the ledger's own change counts as clean: " + clean.stderr
    ledger = (clone / "submissions" / "ledger.csv").read_text().splitlines()
    assert ["-dirty" in line for line in ledger[1:]] == [True, False]
    desk.more["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"  # as root in a container
    for arguments in (command, [*command[:3], "kernels", "package"]):
        refused = run_shell(desk, [*arguments], clone)
        assert refused.returncode == 2, refused.stdout
        assert "dubious" in refused.stderr
