"""Compare the TPU compiler's estimates with kernels that were timed on a TPU v3.

    python -m benchmarks.tpu_kernels ../shared/data/tpu

Compiles each kernel of pb/op_tuning_data.pb alone, for v3, with its module's layouts, and compares
the estimate with the runtime of the record's default tile. The correction is fitted without the
kernel: a time for starting a kernel, and one factor for reductions that keep the minor dimension.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from solution.collecting.tpu.compiled import (
    Branches,
    CompiledProgram,
    Cost,
    Kernel,
    Loop,
    Region,
    Step,
    Tile,
)
from solution.collecting.tpu.devices import find_entry_layouts
from solution.collecting.tpu.estimate import CHIPS, estimate_time
from solution.collecting.tpu.estimator import Estimator
from solution.collecting.tpu.reading import MAJOR_REDUCE
from solution.collecting.tpu.target import TpuTarget
from solution.programs.hlo.messages import read_records
from solution.programs.portable import make_portable

TARGET = TpuTarget("tpu:v3")
RECORDS = Path("pb") / "op_tuning_data.pb"
STARTS = range(0, 1001, 20)  # nanoseconds to try


@dataclass(frozen=True)
class Corrections:
    """Corrections of the compiler's cost model; the defaults change nothing."""

    start: float = 0.0  # nanoseconds added to each kernel for its start
    # factor on the estimated cycles, by the kernel's `kind`; 1 for kinds that are not listed
    factors: Mapping[str, float] = field(default_factory=dict)

    def correct(self, region: Region) -> Region:
        """Return the region with corrected costs of its kernels."""
        return Region(tuple(map(self._correct, region.steps)))

    def _correct(self, step: Step) -> Step:
        chip = CHIPS[TARGET.generation]
        match step:
            case Kernel(cost=Cost(cycles=None)):
                return replace(step, bytes=step.bytes + self.start * chip.gigabytes_per_second)
            case Kernel():
                cycles = step.cost.cycles * self.factors.get(step.kind, 1.0)
                cost = replace(step.cost, cycles=cycles + self.start * chip.gigahertz)
                return replace(step, cost=cost)
            case Loop():
                body, condition = self.correct(step.body), self.correct(step.condition)
                return replace(step, body=body, condition=condition)
            case Branches():
                return Branches(tuple(map(self.correct, step.regions)))
        return step


@dataclass(frozen=True)
class Timed:
    """A kernel of a record, its measured runtime, and its result from today's compiler."""

    name: str
    nanoseconds: int  # with the default tile
    tile: Tile  # the default
    compiled: CompiledProgram

    def estimate(self, corrections: Corrections) -> float:
        """Return the estimated nanoseconds."""
        region = corrections.correct(self.compiled.region)
        return estimate_time(replace(self.compiled, region=region), TARGET)

    @property
    def kind(self) -> str:
        """The kind of the part that takes longest."""
        return max(self.compiled.kernels, key=lambda part: part.cost.cycles or 0).kind

    @property
    def has_same_tile(self) -> bool | None:
        """True if the compiler chose the record's default tile; None if the record has none."""
        if not self.tile.output:
            return None
        return any(
            kernel.cost.tile is not None
            and (kernel.cost.tile.kernel, kernel.cost.tile.output)
            == (self.tile.kernel, self.tile.output)
            for kernel in self.compiled.kernels
        )


def read_kernels(path: Path, estimator: Estimator) -> list[Timed]:
    """Compile the kernels of a file of records; print those that are refused."""
    found = []
    for record in read_records(path):
        (run,) = (run for run in record.runs if run.is_default)
        answer = estimator.estimate(
            make_portable(record.module).SerializeToString(),
            layouts=find_entry_layouts(record.module),
        )
        if answer.compiled is None:
            print(f"{record.module.name}: not compiled: {answer.refused}")
            continue
        found.append(_make_timed(record.module.name, run, answer.compiled))
    return found


def _make_timed(name: str, run: Any, compiled: CompiledProgram) -> Timed:
    sizes = run.tile.sizes
    tile = Tile(*(tuple(b) for b in (sizes.kernel_bounds, sizes.output_bounds, sizes.input_bounds)))
    return Timed(name, run.profile.compute_time_ns, tile, compiled)


def fit(kernels: Sequence[Timed]) -> Corrections:
    """Return the corrections with the smallest sum of absolute errors of logarithms."""
    best, least = Corrections(), np.inf
    for start in STARTS:
        ratios = [
            (kernel.nanoseconds - start) / kernel.estimate(Corrections())
            for kernel in kernels
            if kernel.kind == MAJOR_REDUCE
        ]
        factors = {MAJOR_REDUCE: float(np.median(ratios))} if ratios else {}
        corrections = Corrections(start, factors)
        estimates = np.array([kernel.estimate(corrections) for kernel in kernels])
        measured = np.array([kernel.nanoseconds for kernel in kernels])
        loss = float(np.abs(np.log(estimates / measured)).sum())
        if loss < least:
            best, least = corrections, loss
    return best


def print_table(kernels: Sequence[Timed]) -> None:
    """Print a line for each kernel, and the scores over all of them."""
    measured = np.array([kernel.nanoseconds for kernel in kernels])
    plain = np.array([kernel.estimate(Corrections()) for kernel in kernels])
    corrected = np.array(
        [kernel.estimate(fit([k for k in kernels if k is not kernel])) for kernel in kernels]
    )
    print("| kernel | kind | measured, ns | estimated, ns | corrected | the record's tile |")
    print("|---|---|---|---|---|---|")
    for kernel, before, after in zip(kernels, plain, corrected, strict=True):
        same = {None: "it has none", True: "yes", False: "no"}[kernel.has_same_tile]
        print(
            f"| {kernel.name} | {kernel.kind} | {kernel.nanoseconds:,} | {before:,.0f} | "
            f"{after:,.0f} | {same} |"
        )
    for name, found in (("estimated", plain), ("corrected, leaving one out", corrected)):
        errors = np.abs(found / measured - 1)
        tau = kendalltau(found, measured).statistic
        print(f"{name}: median error {np.median(errors):.1%}, Kendall's tau {tau:.3f}")
    tiles = [kernel.has_same_tile for kernel in kernels]
    print(f"{tiles.count(True)} of {len(tiles) - tiles.count(None)} tiles are the record's default")
    print(f"fitted to all: {fit(kernels)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with pb/op_tuning_data.pb")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as cache, Estimator(TARGET, cache=Path(cache)) as estimator:
        kernels = read_kernels(folder / RECORDS, estimator)
    print(f"{len(kernels)} kernels compiled")
    print_table(kernels)


if __name__ == "__main__":
    main()
