"""The formula for the estimated time of a program on a TPU, with its reasons.

The time of a region (a sequence of steps) is the sum of the times of its steps, in the order in
which the chip runs them, because a TPU's core runs one kernel after the other:

* A kernel takes its estimated cycles divided by the clock rate. Some kernels have no estimate
  (gathers, scatters, select-and-scatter, some reshapes, infeed). They take their bytes divided by
  the bandwidth of HBM, as if they only moved data.
* Asynchronous work takes the bytes that it moves in HBM divided by the bandwidth. It runs in an
  engine that does one copy after the other. The program waits for the work only if it is not done
  when its result is needed.
* A loop takes trips x body + (trips + 1) x condition. If the module does not state the number of
  trips, 10 is assumed (`reading.DEFAULT_TRIPS`): training loops over an infeed do not state theirs.
* A conditional takes as long as its longest branch, because nothing says which branch is taken.

Not included, because the module does not show it: the time to start a kernel, waiting for infeed
and for other chips, contention for HBM between copies and kernels.
"""

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
    """The properties of a chip that the formula needs. If each core of a chip runs a program, the
    properties are those of one core and its share of HBM."""

    gigahertz: float  # clock rate of the core
    gigabytes_per_second: float  # bandwidth of HBM available to one program
    gigabytes: float  # size of HBM available to one program, as the compiler states it


# {TPU generation: chip}, from Google's pages; missing clock rates are derived from peak FLOP rates.
# If each of a chip's two cores runs a program (v2, v3, v4, v7x), bandwidth and memory are halved.
CHIPS = {
    "v2": Chip(0.7, 350, 8),
    "v3": Chip(0.94, 450, 16),
    "v4": Chip(1.05, 614, 16),
    "v5e": Chip(1.5, 819, 16),
    "v5p": Chip(1.75, 2765, 95),
    "v6e": Chip(1.75, 1640, 32),
    "v7x": Chip(2.2, 3690, 96),
}


@dataclass
class _Timeline:
    """A simulation of a chip: when its core and its copying engine become free, in nanoseconds."""

    chip: Chip
    core: float = 0.0
    engine: float = 0.0
    # {name of the Begin that starts asynchronous work: nanosecond at which the work ends}
    ready: dict[str, float] = field(default_factory=dict)

    def run(self, region: Region) -> None:
        for step in region.steps:
            self.core = self._advance(step)

    def _advance(self, step: Step) -> float:
        """Return the nanosecond at which the core has finished a step; update `engine`, `ready`."""
        match step:
            case Kernel():
                return self.core + time_kernel(step, self.chip)
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
        """Return the nanoseconds that asynchronous work occupies the copying engine."""
        moved = step.bytes
        # Asynchronous work with a region slices an array; the copying engine does this work too.
        if step.region is not None:
            moved = sum(kernel.hbm_bytes for kernel in list_kernels(step.region))
        return moved / self.chip.gigabytes_per_second

    def _time(self, region: Region) -> float:
        """Return the nanoseconds of a region that starts while core and copying engine are idle."""
        other = _Timeline(self.chip)
        other.run(region)
        return other.core


def time_kernel(kernel: Kernel, chip: Chip) -> float:
    """Return the nanoseconds of one run of a kernel."""
    if kernel.cost.cycles is None:
        return kernel.bytes / chip.gigabytes_per_second
    return kernel.cost.cycles / chip.gigahertz


def estimate_time(compiled: CompiledProgram, target: TpuTarget) -> float:
    """Return the estimated nanoseconds of one run of a program."""
    timeline = _Timeline(CHIPS[target.generation])
    timeline.run(compiled.region)
    return timeline.core
