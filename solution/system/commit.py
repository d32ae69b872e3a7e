"""Find the commit of the running code."""

import subprocess
from pathlib import Path

LEDGER = "submissions/ledger.csv"
# contains the commit in wheels that are packed for a kernel, where git is missing
COMMIT_FILE = "commit.txt"


def read_commit() -> str | None:
    """Return the commit of the running code; None if it is unknown.

    It is read from COMMIT_FILE, else from the git checkout, with the suffix -dirty if files differ
    from the commit. Changes of the ledger of submissions do not count, because every submission
    changes it, and it has no effect on results.
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
