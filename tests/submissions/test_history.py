"""The picture of the ledger, with submissions and without."""

from pathlib import Path

import pytest

from submissions.ledger import Ledger
from submissions.scores import draw_history, read_anchors


def make_ledger(scored: int) -> Ledger:
    """So many submissions with all scores, one that waits and one made by hand."""
    ledger = Ledger()
    for number in range(scored):
        scores = {"public": f"{0.60 + 0.01 * number}", "private": f"{0.58 + 0.01 * number}"}
        when = f"2026-11-{20 - number:02d}T07:00:00Z"
        ledger.put(f"key{number}", when=when, state="scored", oof_mean="0.6", **scores)
    ledger.put("waiting", when="2026-11-30T07:00:00Z", state="pending", oof_mean="0.7")
    ledger.put("by-hand", when="2026-10-01T07:00:00Z", state="scored", public="0.5", private="0.5")
    return ledger


@pytest.mark.parametrize("scored", [0, 4])
def test_every_scored_submission_is_shown_in_order(scored: int, tmp_path: Path) -> None:
    figure = draw_history(make_ledger(scored), read_anchors())
    course, foretelling = figure.axes
    shown = {str(line.get_label()): line for line in course.lines}
    assert list(shown["private"].get_xdata()) == list(range(scored + 1))  # type: ignore[arg-type]
    dates = [label.get_text() for label in course.get_xticklabels()]
    assert dates == sorted(dates)
    assert len(dates) == scored + 1
    assert f"{scored} submissions" in foretelling.get_title()
    assert any("1st" in name for name in shown)
    for axes in figure.axes:
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    figure.savefig(tmp_path / "history.png", dpi=60)


def test_a_score_of_zero_is_shown() -> None:
    ledger = Ledger()
    scores = {"oof_mean": "0.0", "public": "0.0", "private": "0.00000"}
    ledger.put("key", when="2026-11-20T07:00:00Z", state="scored", **scores)
    course, foretelling = draw_history(ledger, []).axes
    assert [line.get_label() for line in course.lines] == ["public", "private", "out of fold"]
    assert "Kaggle: 1 " in foretelling.get_title()
