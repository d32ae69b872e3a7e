"""Which commit code is of, and whether it differs from it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solution.system import commit


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that holds the module, a ledger and a file."""
    here = tmp_path / "solution" / "system"
    here.mkdir(parents=True)
    shutil.copy(commit.__file__, here)
    (tmp_path / "submissions").mkdir()
    for name in (commit.LEDGER, "README.md"):
        (tmp_path / name).write_text("as committed\n", encoding="utf-8")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "all"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    return tmp_path


def ask(checkout: Path) -> str:
    """What the module in the checkout says."""
    code = "import commit; print(commit.read_commit())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout / "solution" / "system",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_a_checkout_is_dirty_where_more_than_the_ledger_differs(checkout: Path) -> None:
    head = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert ask(checkout) == head
    (checkout / commit.LEDGER).write_text("a submission more\n", encoding="utf-8")
    assert ask(checkout) == head
    (checkout / "README.md").write_text("other words\n", encoding="utf-8")
    assert ask(checkout) == f"{head}-dirty"


def test_without_git_there_is_no_commit(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    assert ask(checkout) == "None"
