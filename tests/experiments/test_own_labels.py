"""The benchmark of a program's own labels, from a folder of files to the sentences it prints."""

from pathlib import Path

import pytest

from benchmarks import own_labels
from solution.domain.collection import LAYOUT

SAMPLE = Path(__file__).parents[2] / "solution/data/sample/npz"


def test_what_learns_nothing_gains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_labels.main(SAMPLE, tmp_path, ["nothing_001"], folds=2)
    printed = " ".join(capsys.readouterr().out.split())  # lines are as long as the terminal is
    for name in (*LAYOUT, "mean"):
        assert f"nothing_001 {name}:" in printed
    assert printed.count("+0.000 (+0.000 to +0.000), P above 0 0.50") == len(LAYOUT) + 1
