"""Decide by new measurements whether a configuration is faster than the compiler's default.

The fastest of many measurements looks faster than it is. So the winner is timed again together with
the default, in several repetitions. Each repetition runs both in turns, in a new process with a new
memory layout. A repetition gives one number: the logarithm of the ratio of the default's smallest
time to the winner's smallest time. Repetitions are independent, but the runs of a repetition are
not, so the interval is Student's t over repetitions.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

# default number of repetitions
ROUNDS = 6
# confidence of the two-sided interval; in 2.5% of cases the whole interval is above the true ratio
CONFIDENCE = 0.95
LEAST = 1.005  # minimum gain that counts: two compilations of one program may differ by less


@dataclass(frozen=True)
class Verdict:
    """An A/B result: the default's time divided by the configuration's time, with an interval."""

    gain: float  # the default's time / the configuration's; above 1: the configuration is faster
    low: float
    high: float
    rounds: int

    @property
    def is_gain(self) -> bool:
        """Return True if the whole interval is above 1 and the gain is at least LEAST."""
        return self.low > 1 and self.gain >= LEAST

    def sentence(self) -> str:
        """Describe the A/B result with its interval."""
        interval = f"[{self.low:.3f}, {self.high:.3f}] in {self.rounds} new repetitions"
        if self.is_gain:
            return f"{self.gain:.3f} times as fast as the compiler's default, {interval}."
        return f"No gain can be shown: {self.gain:.3f} times as fast, {interval}."


def judge(default: np.ndarray, other: np.ndarray) -> Verdict:
    """Return the A/B result from the smallest times (repetitions,) of the default and of another
    configuration. Raises ValueError for fewer than two repetitions, or times not above 0."""
    if len(default) < 2:
        raise ValueError(f"{len(default)} rounds, expected at least 2")
    if not (np.minimum(default, other) > 0).all():
        raise ValueError(f"times of {default} and {other}, expected more than 0")
    gains = np.log(default) - np.log(other)
    mean, error = gains.mean(), gains.std(ddof=1) / np.sqrt(len(gains))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1)) * error
    low, gain, high = (float(np.exp(value)) for value in (mean - reach, mean, mean + reach))
    return Verdict(gain, low, high, len(gains))
