"""Which commit this code is of."""

import subprocess
from pathlib import Path

LEDGER = "submissions/ledger.csv"
COMMIT_FILE = "commit.txt"  # in a wheel that was packed for a kernel, where there is no git


def read_commit() -> str | None:
    """The packed commit, or the checkout's, with -dirty where it differs; None where neither is.

    The ledger aside: it changes with every submission, and decides nothing.
    """
    here = Path(__file__).parent
    packed = here / COMMIT_FILE
    if packed.is_file():
        return packed.read_text(encoding="utf-8").strip()
    git = ["git", "-C", str(here)]
    try:
        described = [*git, "describe", "--always", "--abbrev=40"]
        result = subprocess.run(described, capture_output=True, text=True, check=True)
        differs = subprocess.run(
            [*git, "diff", "--quiet", "HEAD", "--", ":/", f":(top,exclude){LEDGER}"], check=False
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip() + ("-dirty" if differs.returncode else "")
