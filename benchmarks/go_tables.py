"""Print the tables and draw the figure of GO's methods, from the cells of benchmarks.go."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.go_document import FUSION_ROWS, PRINTED
from solution.system.terminal import make_table, output, say

DETERMINISTIC = ("human", "metis", "one device", "tensorflow", "heft", "cpop", "m-etf", "m-sct",
                 "zero-shot", "cp-sat")  # fmt: skip
FUSION_METHODS = ("tensorflow", "annealing", "go")
TOGETHER = ("joint", "single", "sequential")
OURS = ("go", "go-one")
DRAWS = 2000


@dataclass(frozen=True)
class Cell:
    """The result of one method on one workload."""

    workload: str
    tasks: list[str]
    method: str
    seed: int
    seconds: float | None  # of the program; None if no decision fits
    clock: float
    evaluations: int
    bound: float
    reference: float
    # of each decision better than before: number, seconds, wall-clock time
    steps: list[list[float]]

    def reach(self, seconds: float) -> tuple[float, float]:
        """Return number and wall-clock time of the first decision that is as good; NaN if there
        is none."""
        for number, found, clock in self.steps:
            if found <= seconds:
                return number, clock
        return np.nan, np.nan

    def unroll(self) -> np.ndarray:
        """Return the best seconds after each evaluation, relative to the reference; NaN before
        the first."""
        best = np.full(self.evaluations, np.nan)
        for number, found, _ in self.steps:
            best[int(number) - 1 :] = found / self.reference
        return best


def find_gain(baseline: np.ndarray, ours: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Return baseline / ours - 1 by the mean of logarithms, and its 95% interval.

    Args:
        baseline, ours: (workloads, seeds) seconds; NaN if a method is out of memory.
    """
    logs = np.log(baseline / ours)
    logs = logs[np.isfinite(logs).all(axis=1)]
    if not len(logs):
        return np.nan, np.nan, np.nan
    random = np.random.default_rng(seed)
    rows, columns = logs.shape
    means = [
        logs[random.integers(rows, size=rows)][:, random.integers(columns, size=columns)].mean()
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.expm1(logs.mean())), float(np.expm1(low)), float(np.expm1(high))


class Cells:
    """Cells by workload, method and seed; a deterministic method has seed 0 only."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._known = {(cell.workload, cell.method, cell.seed): cell for cell in cells}
        self.workloads = list(dict.fromkeys(cell.workload for cell in cells))
        self.seeds = 1 + max((cell.seed for cell in cells), default=0)

    def find(self, workload: str, method: str, seed: int) -> Cell | None:
        """Return a cell; None if it was not measured."""
        return self._known.get((workload, method, 0 if method in DETERMINISTIC else seed))

    def seconds(self, method: str) -> np.ndarray:
        """Return (workloads, seeds) seconds; NaN if no decision fits, or nothing was measured."""
        return np.array([
            [np.nan if (cell := self.find(name, method, seed)) is None or cell.seconds is None
             else cell.seconds for seed in range(self.seeds)] for name in self.workloads
        ])  # fmt: skip


def tabulate(cells: Sequence[Cell], methods: list[str]) -> None:
    """Print the document's second table with our results, and gains over each method below it."""
    known = Cells(cells)
    seconds = {method: known.seconds(method) for method in methods}
    table = make_table(f"Seconds a step, means of {known.seeds} seeds; in brackets as printed")
    for header in ("Workload", *methods, "Bound"):
        table.add_column(header, justify="right")
    for place, name in enumerate(known.workloads):
        printed = PRINTED.get(name, {})
        row = [name]
        for method in methods:
            mean = seconds[method][place].mean()
            own = "OOM" if np.isnan(mean) else f"{mean:.4f}"
            row.append(own + (f" ({printed[method]})" if method in printed else ""))
        bound = max(cell.bound for cell in cells if cell.workload == name)
        table.add_row(*row, f"{bound:.4f}")
    output.print(table)
    for ours in OURS:
        for method in methods:
            if ours in methods and method != ours:
                say_gain(f"{method} / {ours} - 1", seconds[method], seconds[ours])


def say_gain(name: str, baseline: np.ndarray, ours: np.ndarray) -> None:
    """Print a gain with its interval."""
    say(f"{name}: {describe_gain(baseline, ours)}")


def describe_gain(baseline: np.ndarray, ours: np.ndarray) -> str:
    """Return the result of `find_gain` in words."""
    gain, low, high = find_gain(baseline, ours)
    return f"{gain:+.1%} ({low:+.1%} to {high:+.1%})"


def tabulate_reach(cells: Sequence[Cell]) -> None:
    """Print how soon GO reaches HDP's final result: the document says 15 times as fast.

    Both in evaluations and in wall-clock seconds, without the time in which the shipped policy was
    trained.
    """
    known, methods = Cells(cells), {cell.method for cell in cells}
    for ours in OURS:
        if not {"hdp", ours} <= methods:
            continue
        found = np.array([
            [_compare_reach(known, name, ours, seed) for seed in range(known.seeds)]
            for name in known.workloads
        ])  # fmt: skip
        table = make_table(f"Until {ours} is as good as HDP in the end, means over seeds")
        for header in ("Workload", "HDP, decisions", ours, "HDP, seconds", ours):
            table.add_column(header, justify="right")
        for name, row in zip(known.workloads, np.nanmean(found, axis=1), strict=True):
            table.add_row(name, f"{row[0]:.0f}", f"{row[1]:.0f}", f"{row[2]:.1f}", f"{row[3]:.2f}")
        output.print(table)
        for place, unit in ((0, "decisions"), (2, "seconds of the clock")):
            ratio = found[:, :, place], found[:, :, place + 1]
            gain, low, high = (1 + value for value in find_gain(*ratio))
            say(f"{ours} needs 1 / {gain:.1f} ({low:.1f} to {high:.1f}) of HDP's {unit}.")


def _compare_reach(known: Cells, name: str, ours: str, seed: int) -> tuple[float, ...]:
    """Return evaluations, then wall-clock seconds, of HDP and of ours; NaN if no decision fits."""
    theirs, own = known.find(name, "hdp", seed), known.find(name, ours, seed)
    if theirs is None or own is None or theirs.seconds is None:
        return (np.nan,) * 4
    (number, clock), (own_number, own_clock) = (c.reach(theirs.seconds) for c in (theirs, own))
    return number, own_number, clock, own_clock


def tabulate_fusion(cells: Sequence[Cell]) -> None:
    """Print the document's third table: speed-up of fusion alone over none, in percent."""
    if not cells:
        return
    table = make_table("Fusion alone: no fusion / fused - 1 in percent; in brackets as printed")
    for header in ("Workload", *FUSION_METHODS):
        table.add_column(header, justify="right")
    for name, printed in FUSION_ROWS.items():
        row = [name]
        for method in FUSION_METHODS:
            own = [c for c in cells if c.workload == name and c.method == method]
            gains = [100 * (c.reference / c.seconds - 1) for c in own if c.seconds]
            row.append(f"{np.mean(gains):.2f} ({printed[method]})" if gains else "-")
        table.add_row(*row)
    output.print(table)


def tabulate_together(cells: Sequence[Cell]) -> None:
    """Print all three tasks from scratch: by one network, by one per task, by one after the
    other."""
    known = Cells(cells)
    seconds = {method: known.seconds(method) for method in TOGETHER}
    table = make_table("Fusion, placement and schedule by PPO alone: seconds a step")
    for header in ("Workload", "default", *TOGETHER):
        table.add_column(header, justify="right")
    for place, name in enumerate(known.workloads):
        reference = next(cell.reference for cell in cells if cell.workload == name)
        means = [seconds[method][place].mean() for method in TOGETHER]
        table.add_row(name, *(f"{value:.4f}" for value in (reference, *means)))
    output.print(table)
    for method in TOGETHER[1:]:
        say_gain(f"{method} / joint - 1", seconds[method], seconds["joint"])


def draw_curves(cells: Sequence[Cell], methods: list[str], path: Path) -> None:
    """Draw the best seconds over the reference's by evaluations: the geometric mean over all
    cells."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
    for method in methods:
        own = [c.unroll() for c in cells if c.method == method and c.evaluations > 1 and c.steps]
        if own:
            length = min(len(curve) for curve in own)
            rows = np.log([curve[:length] for curve in own])
            axes.plot(1 + np.arange(length), np.exp(np.nanmean(rows, axis=0)), label=method)
    axes.set(xlabel="decisions simulated", ylabel="best / default", xscale="log")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
