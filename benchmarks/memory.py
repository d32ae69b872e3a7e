"""Measure in a separate process; read its current and its peak memory (Linux)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_apart(module: str, *words: str, **variables: str) -> Any:
    """Run `python -m module words` with these environment variables, and return the JSON in the
    last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def memory(name: str) -> float:
    """Return megabytes of this process: VmRSS now, VmHWM at most.

    The maximum of getrusage also includes the parent process before the start of this one.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))
