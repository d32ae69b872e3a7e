"""Define the callback by which a fit reports its progress."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Report(Protocol):
    """A function that a fit calls to report its progress."""

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
        """Receive one report of progress.

        Args:
            done: steps done so far; a fraction of a long step counts.
            total: steps of the whole fit.
            note: a few words to show beside the progress.
            score: the validation score after this step, higher is better, if there is one; the
                learning curve consists of these scores.
            loss: the training loss of this step, if there is one.
            rate: configurations trained on per second, if known.
            measures: other measurements after this step, by name, such as the validation loss and
                the ordered pair accuracy; they are stored with the score.
            is_recalled: True if this step was done by an earlier fit that was stopped, so it took
                no time in this fit.
        """
        ...


@dataclass(frozen=True)
class FitProgress:
    """One report of a fit's progress: the arguments of a call of Report, as fields."""

    done: float
    total: int
    note: str = ""
    score: float | None = None
    loss: float | None = None
    rate: float | None = None
    measures: Mapping[str, float] | None = None
    is_recalled: bool = False


def silent(*_: object, **__: object) -> None:
    """Ignore the progress: a Report for fits that nobody watches."""
