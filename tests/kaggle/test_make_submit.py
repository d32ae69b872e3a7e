"""What a user types, whole: make, a fresh clone, https, and the README's commands."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.kaggle.desk import SECRET, UNSET, Desk, check
from tests.kaggle.test_data_command import FILES, make_archive
from tests.kaggle.test_fault_matrix import assert_made_once
from tests.kaggle.world import INTROSPECT
from tests.test_readme import COMMANDS

TALKING = {"data", "submit", "scores", "leaderboard", "doctor"}


@pytest.fixture
def desk(desk: Desk) -> Desk:
    """With the kaggle CLI that is found without being told, started as users start it."""
    desk.more["FASTSLOW_KAGGLE"] = UNSET
    return desk


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
    (run / "z_score_001.toml").write_text((run / "mine.toml").read_text())
    for words in commands:
        command = [f"RUN={run}" if word.startswith("RUN=runs/") else word for word in words]
        command = [word.replace("RECIPE=", f"RECIPE={run}/") for word in command]
        command = [word + ".toml" if word.startswith("RECIPE=") else word for word in command]
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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_a_submission_as_in_production(desk: Desk) -> None:
    """No redirection of the CLI: https to api.kaggle.com, through a proxy, with a token."""
    desk.use_https()
    check(desk.submit())
    assert desk.world.count(INTROSPECT)
    assert desk.world.schemes >= {"Bearer"}
    assert_made_once(desk)
