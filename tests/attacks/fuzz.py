"""Fuzz a reader, guided by which of its lines are reached, and keep what reaches new ones.

    pip install --constraint constraints.txt -e ".[dev,fuzz]"
    python -m tests.attacks.fuzz csv build/fuzz/csv tests/attacks/corpus/csv -max_total_time=60
    python -m tests.attacks.fuzz csv -merge=1 tests/attacks/corpus/csv build/fuzz/csv

The second line takes the inputs that reach something new into the corpus. Options are libFuzzer's.
What breaks a reader is written beside: add it to the corpus when it is mended.
"""

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["solution", "ensembles", "submissions"]):
    from tests.attacks.targets import MAX_INPUT, TARGETS

if __name__ == "__main__":
    target, options = TARGETS[sys.argv[1]], sys.argv[2:]
    for folder in options:
        if not folder.startswith("-"):
            Path(folder).mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], f"-max_len={MAX_INPUT}", "-rss_limit_mb=3000", *options], target)
    atheris.Fuzz()
