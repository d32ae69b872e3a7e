"""Predict how much processor time it takes to compile many configurations of a program.

A compilation runs passes over HLO, then generates code. Every configuration needs the passes. Code
is generated only for new kernels: for all kernels in the first compilation and after a change of an
option, for few kernels after several layouts were compiled. The first compilation shows how long
both parts take. How much code later compilations generate was measured on nine programs
(docs/choosing.md); finished compilations correct these shares.
"""

from solution.collecting.tpu.space import TpuSpace
from solution.programs.hlo.messages import instructions
from solution.system.wording import compare_times, spell

# An answer that took at most this many processor seconds was read from the cache, not compiled.
CACHED_SECONDS = 0.1
# FIRST_LAYOUTS holds for the first FEW configurations, LATER_LAYOUTS for the others
FEW = 4
# Mean of (time of code generation / that time in the first compilation), as a pair: for programs
# without convolutions, and with them. Kernels for new layouts of convolutions take several times
# as long to generate. MIXED: a configuration changes layouts and options together.
FIRST_LAYOUTS, LATER_LAYOUTS, MIXED = (1.2, 3.0), (0.1, 0.6), (0.55, 1.1)
FAR = 1.3  # a prediction is corrected if it is wrong by more than this factor
TRUST = 4.0  # weight of the shares measured on nine programs, in complete code generations


class Duration:
    """Predicts the processor time of compilations; finished ones correct the prediction."""

    def __init__(self, space: TpuSpace, wanted: int, *, tries_options_first: bool = False) -> None:
        """Predict for the default and `wanted` other configurations. `tries_options_first`: a
        search tries each value of each option alone before it combines them."""
        # (wanted,) expected time of code generation of each configuration / the default's time
        self._shares = _expect_shares(space, wanted, tries_options_first=tries_options_first)
        alone = len(space.settings) if tries_options_first and space.layout_sites else 0
        # minimum number of finished compilations before `correct` replaces the stated duration
        self._settled = alone + 2 * FEW
        # True if a duration can be predicted: the default was compiled, not read from the cache,
        # and the number of configurations is known
        self.is_known = False
        self._passes = self._generation = 0.0
        self._first = self._spent = 0.0
        # number of finished compilations, not counting the default's
        self.done = 0
        # processor seconds that `describe` stated; 0 once `correct` has replaced them
        self._promised = 0.0

    def begin(self, seconds: float, passes_seconds: float) -> None:
        """Record the processor seconds of the default's compilation, and of its passes over HLO."""
        self.is_known = bool(self._shares) and seconds > CACHED_SECONDS
        self._first, self._passes = seconds, passes_seconds
        self._generation = seconds - passes_seconds

    def add(self, seconds: float) -> None:
        """Record the processor seconds of the next compilation."""
        self._spent += seconds
        self.done += 1

    @property
    def total(self) -> float:
        """Return the processor seconds of all compilations, the default's included: measured for
        the finished ones, predicted for the others."""
        return self._first + self._spent + self.left

    @property
    def left(self) -> float:
        """Return the predicted processor seconds of the compilations that are still to be done."""
        expected, later = sum(self._shares[: self.done]), self._shares[self.done :]
        # factor that corrects the later shares: (TRUST + measured) / (TRUST + expected), where
        # measured and expected are the sums of the shares of the finished compilations
        factor = 1.0
        if self.done and self._generation > 0:
            needed = (self._spent - self.done * self._passes) / self._generation
            factor = (TRUST + max(0.0, needed)) / (TRUST + expected)
        return len(later) * self._passes + factor * sum(later) * self._generation

    def describe(self, name: str, processes: int) -> str:
        """Return a sentence that states how long all compilations take, `processes` in parallel."""
        self._promised = self.total
        return (
            f"{name}: compiling it took {self._first:.1f} s of processor time; with it, "
            f"{1 + len(self._shares)} compilations will take about {spell(self.total)} of "
            f"processor time, {spell(self.total / processes)} on {processes} idle cores; less "
            "where kernels are known already."
        )

    def correct(self, name: str, processes: int) -> str:
        """Return a sentence with a new prediction if the prediction that `describe` stated is wrong
        by a factor above FAR. Return "" if it is not, if it was corrected before, or if too few
        compilations are finished."""
        ratio = self.total / self._promised if self._promised else 1.0
        if self.done < self._settled or 1 / FAR <= ratio <= FAR:
            return ""
        self._promised = 0.0
        return (
            f"{name}: after {1 + self.done} of {1 + len(self._shares)} compilations, all will take "
            f"{compare_times(ratio)} as said: about {spell(self.total)} of processor time, "
            f"{spell(self.total / processes)} on {processes} idle cores."
        )


def _expect_shares(space: TpuSpace, wanted: int, *, tries_options_first: bool) -> list[float]:
    """Return the expected time of code generation of each of the next `wanted` configurations / the
    default's time."""
    if not space.layout_sites:
        return [1.0] * wanted
    nodes = instructions(space.program.module)
    convolves = any(node.opcode == "convolution" for node in nodes)
    if not space.option_choices:
        few = min(FEW, wanted)
        return [FIRST_LAYOUTS[convolves]] * few + [LATER_LAYOUTS[convolves]] * (wanted - few)
    alone = min(wanted, len(space.settings)) if tries_options_first else wanted
    return [1.0] * alone + [MIXED[convolves]] * (wanted - alone)
