"""What a log says of models in training."""

import io
import re
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from rich.console import Console

from solution.system.report import Report
from solution.training.watch import FitLine, LiveTable, LogLines, TimeLeft


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
    monkeypatch.setattr("solution.training.watch.time.monotonic", lambda: 1000.0)
    left = TimeLeft(Counter({"quick x": 2, "slow x": 4, "slow x + y": 1}))
    left.finish("quick x fold 0", 1)
    assert left.describe([], 1) == ""  # one of six is known
    left.finish("slow x fold 0", 60)
    assert left.describe([], 2) == ", at least 1 min 30 s left"
    running = FitLine("slow x + y fold 0", started=970.0, done=0.25, total=2)
    assert left.describe([running], 1) == ", about 6 min 31 s left"  # 1 + 3 * 60 + 7 / 8 * 240
    for name in ("quick x fold 1", *(f"slow x fold {fold}" for fold in (1, 2, 3))):
        left.finish(name, 60)
    assert left.describe([running], 1) == ", about 3 min 30 s left"
    left.finish("slow x + y fold 0", 240)
    assert left.describe([], 1) == ""


def test_what_an_earlier_fit_did_takes_no_time_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said, is_said = [1000.0], [], threading.Event()

    def write(line: str) -> None:
        said.append(line)
        is_said.set()

    def go_on(report: Report) -> None:
        for epoch in range(1, 51):
            report(epoch, 100, "", 0.5, is_recalled=True)
        for epoch in (50.5, 51, 51.5, 52):
            now[0] += 0.5
            report(epoch, 100)

    monkeypatch.setattr("solution.training.watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr("solution.training.watch.QUIET_SECONDS", 1.0)
    table = LiveTable("mine", total=1)
    with table.job("fold 0") as report:
        go_on(report)
        shown = io.StringIO()
        Console(file=shown, width=100).print(table.render())
    assert re.search(r"52/100 .* 0:02 +0:48", shown.getvalue())
    now[0] = 1000.0
    with LogLines(1, writers=[write]) as lines, lines.job("fold 0") as report:
        go_on(report)
        assert is_said.wait(60)
    assert all(fact in said[0] for fact in ("52 of 100", "48 s"))


def test_the_models_to_come_take_what_a_whole_fit_does() -> None:
    said: list[str] = []
    with LogLines(2, writers=[said.append]) as lines:
        with lines.job("fold 0") as report:
            report(9, 10, is_recalled=True)
            time.sleep(0.2)
            report(10, 10)
        lines.advance()
    foretold = re.search(r"about ([\d.]+) s left", said[0])
    assert foretold is not None
    assert 1.9 <= float(foretold[1]) < 30
