"""Fuzz a reader, guided by which of its lines are reached, and keep what reaches new ones.

    pip install --constraint constraints.txt -e ".[dev,fuzz]"
    python -m tests.attacks.fuzz csv build/fuzz/csv tests/attacks/corpus/csv -max_total_time=60

Options are libFuzzer's. Inputs that reach something new lie in the first folder then: take small
ones into the corpus. What breaks a reader is written where it was begun: it belongs there as well,
when it is mended.
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
