"""Which commit this code is of."""

import subprocess
from pathlib import Path

COMMIT_FILE = "commit.txt"  # in a wheel that was packed for a kernel, where there is no git


def read_commit() -> str | None:
    """The packed commit, or the checkout's, with -dirty where it differs; None where neither is."""
    here = Path(__file__).parent
    packed = here / COMMIT_FILE
    if packed.is_file():
        return packed.read_text(encoding="utf-8").strip()
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()
