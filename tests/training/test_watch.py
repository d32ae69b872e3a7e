"""What a log says of models in training."""

import re
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from solution.training.fit_line import Line, TimeLeft
from solution.training.watch import LogLines


def test_the_time_left_counts_from_the_first_of_models_that_are_trained_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with LogLines(4) as lines, ExitStack() as second:
        with lines.job("first"):
            time.sleep(0.5)
            second.enter_context(lines.job("second"))
        lines.advance()
    said = re.search(r"1 of 4  first in .*, about ([\d.]+) s left", capsys.readouterr().err)
    assert said is not None
    assert 0.7 <= float(said[1]) < 30  # three are left, two at once


def test_kinds_of_models_are_foretold_each_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick models that are trained first say nothing of the slow ones that come later."""
    monkeypatch.setattr("solution.training.fit_line.time.monotonic", lambda: 1000.0)
    left = TimeLeft(Counter({"quick x": 2, "slow x": 4, "slow x + y": 1}))
    left.finish("quick x fold 0", 1)
    assert left.describe([], 1) == ""  # one of six is known
    left.finish("slow x fold 0", 60)
    assert left.describe([], 2) == ", at least 1 min 30 s left"
    running = Line("slow x + y fold 0", started=970.0, done=0.25, total=2)
    assert left.describe([running], 1) == ", about 7 min 1 s left"  # 1 + 3 * 60 + 240
    for name in ("quick x fold 1", *(f"slow x fold {fold}" for fold in (1, 2, 3))):
        left.finish(name, 60)
    assert left.describe([running], 1) == ", about 4 min 0 s left"
    left.finish("slow x + y fold 0", 240)
    assert left.describe([], 1) == ""
