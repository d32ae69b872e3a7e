"""What is known of a fit that goes on, and of when all of them will be over."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from solution.system.wording import spell


@dataclass
class Line:
    """What is known of one fit."""

    name: str
    started: float = field(default_factory=lambda: time.monotonic())
    seconds: float = 0.0
    first: float = 0  # epochs that were done before, by a fit that was stopped
    done: float = 0
    total: int = 0
    loss: float | None = None
    score: float | None = None
    best: float | None = None
    rate: float | None = None
    is_begun: bool = False
    is_over: bool = False

    def take(
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
        """The Report of the fit."""
        if is_recalled:
            self.first = done
        elif not self.is_begun:  # where nothing is validated, nothing is recalled
            self.first, self.is_begun = max(0, math.ceil(done) - 1), True
        self.done, self.total = done, total
        self.seconds = time.monotonic() - self.started
        if loss is not None:  # known at the end of an epoch
            self.loss, self.rate = loss, rate
        if score is not None:
            self.score = score
            self.best = score if self.best is None else max(self.best, score)

    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        here = self.done - self.first
        left = (self.total - self.done) * self.seconds / here if here > 0 else None
        return (
            self.name,
            f"{spell_steps(self.done)}/{self.total}" if self.total else "",
            _show(self.loss, "{:.3f}"),
            _show(self.score, "{:.3f}"),
            _show(self.best, "{:.3f}"),
            _show(self.rate, "{:,.0f}"),
            _clock(self.seconds),
            "" if self.is_over else _clock(left),
        )


class TimeLeft:
    """Foretells when all models are trained, by those of the same kind.

    Args:
        kinds: models to train, of each kind.
    """

    def __init__(self, kinds: Mapping[str, int]) -> None:
        self._left = Counter(kinds)
        self._seconds: dict[str, list[float]] = {kind: [] for kind in kinds}

    def finish(self, name: str, seconds: float, line: Line | None = None) -> None:
        """A model is trained, in so many seconds; a fit that was gone on with took more before."""
        if line is not None and line.done > line.first:
            seconds *= line.done / (line.done - line.first)
        kind = self._kind(name)
        self._left[kind] -= 1
        self._seconds.setdefault(kind, []).append(seconds)

    def describe(self, running: Sequence[Line], at_once: int) -> str:
        """In words that end a sentence; none where nothing is left, or nothing is known.

        Args:
            running: the fits that are going on.
            at_once: how many of them there are as a rule.
        """
        known = {kind: list(seconds) for kind, seconds in self._seconds.items()}
        models: dict[str, float] = dict(self._left)
        for line in running:  # of a kind that has ended none, what is seen of it
            seen, kind = time.monotonic() - line.started, self._kind(line.name)
            models[kind] = models.get(kind, 0) - (line.done / line.total if line.total else 0)
            if line.done > line.first and not known.setdefault(kind, []):
                known[kind].append(seen * line.total / (line.done - line.first))
        left = {kind: number for kind, number in models.items() if number > 0}
        means = {kind: sum(known[kind]) / len(known[kind]) for kind in left if known.get(kind)}
        if 2 * sum(left[kind] for kind in means) < sum(left.values()) or not means:
            return ""  # of the most nothing is known
        least = "at least" if len(means) < len(left) else "about"
        seconds = sum(mean * left[kind] for kind, mean in means.items()) / max(1, at_once)
        return f", {least} {spell(seconds)} left"

    def _kind(self, name: str) -> str:
        return max((kind for kind in self._seconds if name.startswith(kind)), key=len, default="")


def spell_steps(steps: float) -> str:
    """Parts of a step in tenths."""
    return f"{math.floor(10 * steps) / 10:g}"


def _show(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _clock(seconds: float | None) -> str:
    return "" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02}"
