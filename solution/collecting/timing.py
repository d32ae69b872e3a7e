"""Turn repeated times of configurations into labels, and measure how reliable these are.

Every pass visits all configurations in a new random order, so that no configuration alone profits
from quiet moments of the machine. A visit is a few runs of one configuration. Passes alternate
between two halves, which share no runs. The repeat tau is Kendall's tau between the halves'
smallest times: 1 if noise never changes the order.

Measured on programs with nearly equal runtimes: the CPU time of a process pinned to one core
repeats best. CPU time of a process with several cores repeats worse than wall time, because the
system accounts for other cores' threads late.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.domain.metrics import kendall_tau

SCHEMA = pl.Schema(
    {
        "config": pl.String(),  # the configuration's name
        "half": pl.UInt8(),  # 0 for runs in even passes, 1 for runs in odd passes
        "turn": pl.UInt32(),  # number of the pass (which runs all configurations)
        "cpu_ns": pl.Int64(),
        "wall_ns": pl.Int64(),
    }
)
VISIT_NANOSECONDS = 4_000_000  # approximate duration of a visit
MIN_RUNS, MAX_RUNS = 2, 20  # minimum and maximum number of runs in a visit
MIN_PASSES = 6  # minimum number of passes in each half before the order can count as settled
SETTLED_TAU = 0.97  # from this repeat tau on, the order is settled
# the order is settled, too, if the repeat tau rose by less than GAIN in the last 40% of passes
WINDOW, GAIN = 0.6, 0.01
FLAT_TAU = 0.35  # below this repeat tau, the order is chance
FLAT_SPREAD = 1.02  # below this ratio of slowest to fastest, all are equally fast


@dataclass(frozen=True)
class Outcome:
    """The labels of a program's configurations, and how reliable they are."""

    # names of the configurations
    configs: list[str]
    # (2, configs) smallest time of each configuration in each half of the passes, in nanoseconds
    halves: np.ndarray
    tau: float  # Kendall's tau between the times of the two halves

    @property
    def nanoseconds(self) -> np.ndarray:
        """Return labels (configs,): the larger of both halves' smallest times, because a fast run
        in only one half is a clock error."""
        return self.halves.max(axis=0)

    @property
    def spread(self) -> float:
        """Return the ratio of the slowest to the fastest label; 1 if there is no label."""
        if not self.configs:
            return 1.0
        return float(self.nanoseconds.max() / self.nanoseconds.min())

    @property
    def is_flat(self) -> bool:
        """Return True if the labels are useless: all are equally fast, or the order is chance."""
        return self.spread < FLAT_SPREAD or self.tau < FLAT_TAU


def choose_runs(nanoseconds: int) -> int:
    """Return how often a visit runs a configuration; one run takes `nanoseconds`."""
    return int(np.clip(VISIT_NANOSECONDS // max(1, nanoseconds), MIN_RUNS, MAX_RUNS))


def summarise(repeats: pl.DataFrame, clock: str) -> Outcome:
    """Return the outcome of configurations timed in both halves. `clock`: "cpu" or "wall"."""
    smallest = (
        repeats.group_by("config", "half", maintain_order=True)
        .agg(pl.col(f"{clock}_ns").min().alias("ns"))
        .pivot("half", index="config", values="ns")
    )
    columns = [
        pl.col(half) if half in smallest.columns else pl.lit(None).alias(half) for half in "01"
    ]
    both = smallest.select("config", *columns).drop_nulls()
    halves = both.select("0", "1").to_numpy().T.astype(np.int64).reshape(2, -1)
    tau = kendall_tau(halves[0], halves[1]) if len(both) > 1 else 0.0
    return Outcome(both["config"].to_list(), halves, tau)


def is_settled(repeats: pl.DataFrame, clock: str) -> bool:
    """Return True if more passes would hardly change the order of the configurations."""
    passes = repeats["turn"].n_unique()
    if passes < 2 * MIN_PASSES:
        return False
    now = summarise(repeats, clock).tau
    earlier = repeats.filter(pl.col("turn") <= WINDOW * pl.col("turn").max())
    return now >= SETTLED_TAU or now - summarise(earlier, clock).tau < GAIN
