"""The estimate of a program's time on a TPU: the one formula, and its reasons.

The time of a region is the sum of the times of its steps, in the order in which the chip runs
them, because a TPU's core runs one kernel after the other:

* a kernel takes its estimated cycles over the clock. Some kernels have no estimate (gathers,
  scatters, select-and-scatter, some reshapes, infeed; `CompiledProgram.unestimated` has them):
  they take their bytes over the bandwidth of HBM, as if they did nothing but move them;
* what starts beside computation takes the bytes that it moves in HBM over the bandwidth, in an
  engine that does one copy after the other; the program waits for it only where it is used before
  it is done;
* a loop takes trips x body + (trips + 1) x condition. Trips are those that the module tells, and
  else 10 (`reading.DEFAULT_TRIPS`), as training loops over an infeed do not tell theirs;
* a conditional takes as long as its longest branch, because nothing says which one is taken.

Left out, because nothing in the module tells it: starting kernels, waiting for infeed and for
other chips, contention for HBM between copies and kernels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from solution.collecting.tpu.compiled import (
    Begin,
    Branches,
    CompiledProgram,
    Kernel,
    Loop,
    Region,
    Step,
    Wait,
    list_kernels,
)
from solution.collecting.tpu.target import TpuTarget


@dataclass(frozen=True)
class Chip:
    """The properties of a chip's generation in the formula, for the part that one program runs
    on."""

    gigahertz: float  # the clock of the core
    gigabytes_per_second: float  # of its share of HBM
    gigabytes: float  # of its share of HBM, as the compiler has it


# Clocks and bandwidths as Google's pages have them; where they have no clock, it follows from the
# peak of products and the number of multipliers. Where a chip has two cores that run a program
# each (v2, v3, v4, v7x), a core has half of the bandwidth
# and of the memory.
CHIPS = {
    "v2": Chip(0.7, 350, 8),
    "v3": Chip(0.94, 450, 16),
    "v4": Chip(1.05, 614, 16),
    "v5e": Chip(1.5, 819, 16),
    "v5p": Chip(1.75, 2765, 95),
    "v6e": Chip(1.75, 1640, 32),
    "v7x": Chip(2.2, 3690, 96),
}


@dataclass(frozen=True)
class Corrections:
    """Corrections of the compiler's cost model; by default none."""

    start: float = 0.0  # nanoseconds that starting a kernel takes
    # factor of the cycles, by kind of kernel
    factors: Mapping[str, float] = field(default_factory=dict)


@dataclass
class _Timeline:
    """The times at which the core and the copying engine become free."""

    chip: Chip
    corrections: Corrections
    core: float = 0.0
    engine: float = 0.0
    # end of the asynchronous work, by name of its Begin
    ready: dict[str, float] = field(default_factory=dict)

    def run(self, region: Region) -> None:
        for step in region.steps:
            self.core = self._advance(step)

    def _advance(self, step: Step) -> float:
        """Return the time at which the core has finished a step."""
        match step:
            case Kernel():
                return self.core + time_kernel(step, self.chip, self.corrections)
            case Begin():
                self.engine = max(self.engine, self.core) + self._time_beside(step)
                self.ready[step.name] = self.engine
                return self.core
            case Wait():
                return max(self.core, self.ready.get(step.name, 0.0))
            case Loop():
                body = self._time(step.body)
                return self.core + step.trips * body + (step.trips + 1) * self._time(step.condition)
            case Branches():
                return self.core + max((self._time(region) for region in step.regions), default=0.0)

    def _time_beside(self, step: Begin) -> float:
        moved = step.bytes
        if step.region is not None:  # an asynchronous slice of an array, in the same engine
            moved = sum(kernel.hbm_bytes for kernel in list_kernels(step.region))
        return moved / self.chip.gigabytes_per_second

    def _time(self, region: Region) -> float:
        """Return the duration of a region that runs alone."""
        other = _Timeline(self.chip, self.corrections)
        other.run(region)
        return other.core


def time_kernel(kernel: Kernel, chip: Chip, corrections: Corrections) -> float:
    """Return the nanoseconds of one run of a kernel."""
    if kernel.cost.cycles is None:
        return corrections.start + kernel.bytes / chip.gigabytes_per_second
    factor = corrections.factors.get(kernel.kind, 1.0)
    return corrections.start + kernel.cost.cycles / chip.gigahertz * factor


def estimate_time(
    compiled: CompiledProgram, target: TpuTarget, corrections: Corrections | None = None
) -> float:
    """Return the estimated nanoseconds of one run of a program."""
    timeline = _Timeline(CHIPS[target.generation], corrections or Corrections())
    timeline.run(compiled.region)
    return timeline.core
