"""How a fit tells whoever watches it how far it is."""

from collections.abc import Mapping
from typing import Protocol


class Report(Protocol):
    """Called as a fit goes on."""

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
        """Take note of the progress.

        Args:
            done: steps done; where one takes long, parts of it count.
            total: steps in all.
            note: a few words.
            score: the validation score after this step, higher is better, where there is one; the
                learning curve is made of these.
            loss: the training loss of this step, where there is one.
            rate: configurations learned from per second, where it is known.
            measures: what else is measured after this step, by name, such as the loss and the
                ordered pair accuracy of a validation; kept beside the score.
            is_recalled: an earlier fit, which was stopped, did this step: it took no time now.
        """
        ...


def silent(*_: object, **__: object) -> None:
    """A Report that says nothing."""
