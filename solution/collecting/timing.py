"""How configurations are timed, and what the times say of themselves.

Every pass visits all configurations in a new random order, so that no one of them has the machine
for itself while it is quiet. Passes belong by turns to two halves, which share nothing: Kendall's
tau between the halves' smallest times, the repeat tau, says how far the order is the programs' own.

Measured on programs with nearly the same runtimes: the CPU time of a process that is pinned to one
core repeats best. CPU time of a process with several cores repeats worse than the clock, for the
system accounts other cores' threads late.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.domain.metrics import kendall_tau

SCHEMA = pl.Schema(
    {
        "config": pl.String(),  # its name
        "half": pl.UInt8(),
        "turn": pl.UInt32(),  # the pass
        "cpu_ns": pl.Int64(),
        "wall_ns": pl.Int64(),
    }
)
VISIT_NANOSECONDS = 4_000_000  # about as long as a visit runs a configuration
MIN_RUNS, MAX_RUNS = 2, 20  # of a visit
MIN_PASSES = 6  # before it is asked whether the order is settled
SETTLED_TAU = 0.97
WINDOW = 0.6  # where the last 40% of the passes changed no more than
GAIN = 0.01  # this of the repeat tau, more of them will not
FLAT_TAU = 0.35  # below, the two halves hardly agree
FLAT_SPREAD = 1.02  # slowest over fastest


@dataclass(frozen=True)
class Outcome:
    """What the repeats of a program's configurations say."""

    configs: list[str]  # names
    halves: np.ndarray  # (2, configs) nanoseconds, the smallest of each half
    tau: float  # between the halves

    @property
    def nanoseconds(self) -> np.ndarray:
        """The labels (configs,): the smallest time that both halves have seen.

        Noise makes a run slower; what made one faster that no other half knows is the clock's.
        """
        return self.halves.max(axis=0)

    @property
    def spread(self) -> float:
        """Slowest over fastest."""
        return float(self.nanoseconds.max() / self.nanoseconds.min())

    @property
    def is_flat(self) -> bool:
        """Nothing can be learned from it: all are equally fast, or the order is chance."""
        return self.spread < FLAT_SPREAD or self.tau < FLAT_TAU


def choose_runs(nanoseconds: int) -> int:
    """How often a visit runs a configuration that takes so long."""
    return int(np.clip(VISIT_NANOSECONDS // max(1, nanoseconds), MIN_RUNS, MAX_RUNS))


def summarise(repeats: pl.DataFrame, clock: str) -> Outcome:
    """The outcome of all configurations that were timed in both halves.

    Args:
        repeats: of SCHEMA.
        clock: cpu or wall.
    """
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
    """Whether more passes would hardly change the order."""
    passes = repeats["turn"].n_unique()
    if passes < 2 * MIN_PASSES:
        return False
    now = summarise(repeats, clock).tau
    earlier = repeats.filter(pl.col("turn") <= WINDOW * pl.col("turn").max())
    return now >= SETTLED_TAU or now - summarise(earlier, clock).tau < GAIN
