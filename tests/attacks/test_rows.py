"""The table of single attacks says what became of each, and no section lacks any."""

import subprocess
import sys

import pytest

from tests.attacks.rows import SECTIONS, tabulate
from tests.attacks.stories import REPOSITORY


def test_the_table_counts_what_was_made_and_survived() -> None:
    outcomes = [
        ("npz", "bomb", "passed"), ("npz", "bomb", "failed"), ("npz", "names", "passed"),
        ("runs", "kill", "skipped"),
    ]  # fmt: skip
    lines = [line.split() for line in tabulate(outcomes).splitlines()]
    assert lines[1] == ["npz", "227", "3", "2"]
    assert ["runs", "64", "1", "0"] in lines
    assert lines[-1] == ["all", "581", "4", "2"]
    by_row = [line.split() for line in tabulate(outcomes, by_row=True).splitlines()]
    assert by_row[2] == ["2", "1", "bomb"]


@pytest.mark.slow
def test_every_section_has_its_attacks() -> None:
    command = [sys.executable, "-m", "tests.attacks.rows", "--collect-only"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    for section, least in SECTIONS.items():
        (line,) = [line for line in lines if line.startswith(f"{section:18}{least:>10}")]
        assert int(line.split()[-2]) >= least, line
