"""Keep what a ranker reports of its validation while it is fitted: its learning curve."""

from collections.abc import Mapping, Sequence

import numpy as np

from solution.system.report import Report

MAX_POINTS = 60
DIGITS = 5
LAST = 10  # scores that a curve's volatility is of


class LearningCurve:
    """A Report that remembers the scores and passes everything on."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._points: list[tuple[int, float]] = []
        self._measures: list[Mapping[str, float]] = []

    def __call__(
        self,
        done: float,
        total: int,
        note: str = "",
        score: float | None = None,
        *,
        loss: float | None = None,
        rate: float | None = None,
        measures: Mapping[str, float] | None = None,
        is_recalled: bool = False,
    ) -> None:
        """Remember the score and what was measured with it, if there is one."""
        if score is not None:
            self._points.append((int(done), round(float(score), DIGITS)))
            self._measures.append(measures or {})
        self._report(
            done,
            total,
            note,
            score,
            loss=loss,
            rate=rate,
            measures=measures,
            is_recalled=is_recalled,
        )

    def points(self) -> list[tuple[int, float]]:
        """(step, validation score) in the order of the fit, thinned evenly.

        The first and the last point and the first of the best ones are always kept. A ranker that
        fits several models one after the other starts again at a low step.
        """
        return [self._points[place] for place in self._kept()]

    def measures(self) -> dict[str, list[float]]:
        """What else was measured at the steps of `points`, by name.

        Only what was measured, and is finite, at all of them.
        """
        kept = [self._measures[place] for place in self._kept()]
        found = {
            name: [round(float(row.get(name, np.nan)), DIGITS) for row in kept]
            for name in (kept[0] if kept else {})
        }
        return {name: values for name, values in found.items() if np.isfinite(values).all()}

    def volatility(self) -> float | None:
        """The volatility of all its scores, of the last model where there are several."""
        steps = [step for step, _ in self._points]
        starts = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
        return measure_volatility([score for _, score in self._points[max(starts, default=0) :]])

    def _kept(self) -> list[int]:
        scores = [score for _, score in self._points]
        if len(scores) <= MAX_POINTS:
            return list(range(len(scores)))
        every = -(-len(scores) // MAX_POINTS)
        return sorted({*range(0, len(scores), every), len(scores) - 1, scores.index(max(scores))})


def measure_volatility(scores: Sequence[float]) -> float | None:
    """How much a curve moves: the standard deviation of its last ten validation scores.

    None where there are fewer than two.
    """
    last = scores[-LAST:]
    return float(np.std(last)) if len(last) > 1 else None
