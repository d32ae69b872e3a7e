"""Whether a configuration is faster than the compiler's own, on runs that were not chosen by.

The fastest of many measurements looks faster than it is. So what was found is timed again beside
the default, in rounds: each in a process of its own, which lays out memory anew, both visited by
turns. A round gives one number, the logarithm of the smallest time of the default over that of the
other. Rounds, not runs, are what repeats independently, so the interval is Student's over rounds.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

ROUNDS = 6
CONFIDENCE = 0.95  # of the interval; its lower end alone is passed by chance half as often
LEAST = 1.005  # gains below are no gain to anybody, and a build's luck is as large


@dataclass(frozen=True)
class Verdict:
    """How much faster the configuration is than the default: a ratio of times, and its interval."""

    gain: float  # over 1: faster
    low: float
    high: float
    rounds: int

    @property
    def is_gain(self) -> bool:
        """Whether it can be told that it is faster."""
        return self.low > 1 and self.gain >= LEAST

    def sentence(self) -> str:
        """In words, with the interval."""
        interval = f"[{self.low:.3f}, {self.high:.3f}] in {self.rounds} fresh rounds"
        if self.is_gain:
            return f"{self.gain:.3f} times as fast as the compiler's default, {interval}."
        return f"No gain that can be told: {self.gain:.3f} times as fast, {interval}."


def judge(default: np.ndarray, other: np.ndarray) -> Verdict:
    """The verdict of the smallest times (rounds,) of both, round by round.

    Raises ValueError for fewer than two rounds, and for times that are none.
    """
    if len(default) < 2:
        raise ValueError(f"{len(default)} rounds, expected at least 2")
    if not (np.minimum(default, other) > 0).all():
        raise ValueError(f"times of {default} and {other}, expected more than 0")
    gains = np.log(default) - np.log(other)
    mean, error = gains.mean(), gains.std(ddof=1) / np.sqrt(len(gains))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1)) * error
    low, gain, high = (float(np.exp(value)) for value in (mean - reach, mean, mean + reach))
    return Verdict(gain, low, high, len(gains))
