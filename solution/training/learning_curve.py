"""Keep the validation scores that a ranker reports while it is fitted: its learning curve."""

from solution.system.report import Report

MAX_POINTS = 60
DIGITS = 5


class LearningCurve:
    """A Report that remembers the scores and passes everything on."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._points: list[tuple[int, float]] = []

    def __call__(
        self,
        done: int,
        total: int,
        note: str = "",
        score: float | None = None,
        **facts: float | None,
    ) -> None:
        """Remember the score, if there is one."""
        if score is not None:
            self._points.append((done, round(float(score), DIGITS)))
        self._report(done, total, note, score, **facts)

    def points(self) -> list[tuple[int, float]]:
        """(step, validation score) in the order of the fit, thinned evenly.

        The first and the last point and the first of the best ones are always kept. A ranker that
        fits several models one after the other starts again at a low step.
        """
        if len(self._points) <= MAX_POINTS:
            return list(self._points)
        scores = [score for _, score in self._points]
        every = -(-len(scores) // MAX_POINTS)
        kept = {*range(0, len(scores), every), len(scores) - 1, scores.index(max(scores))}
        return [self._points[place] for place in sorted(kept)]
