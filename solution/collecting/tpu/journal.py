"""Columns of the journal for a compiler's estimates."""

import numpy as np
import polars as pl

from solution.collecting.journal import CANDIDATES, SOUND
from solution.collecting.timing import Outcome

ESTIMATES = pl.Schema(
    {
        **CANDIDATES,  # compile_seconds: of processor time
        "nanoseconds": pl.Float64(),  # the estimate; null where the compiler refused
        "program": pl.String(),  # equal for configurations that compile to the same program
        "taken": pl.Int32(),  # number of output layouts that the compiled program has as requested
        "untaken": pl.List(pl.Int32()),  # configurable nodes whose output has another layout
        "unseen": pl.Int32(),  # number of requests whose instruction no longer exists
    }
)


def read_estimates(candidates: pl.DataFrame) -> Outcome:
    """Return the estimates of the sound configurations, which no repetition would change.

    Args:
        candidates: of ESTIMATES.
    """
    sound = candidates.filter(pl.col("status") == SOUND)
    nanoseconds = round_estimates(sound["nanoseconds"].to_numpy())
    return Outcome(sound["config"].to_list(), np.stack([nanoseconds, nanoseconds]), 1.0)


def round_estimates(nanoseconds: np.ndarray) -> np.ndarray:
    """Return whole nanoseconds int64, as records have them, large enough to count as a time."""
    return np.maximum(np.rint(nanoseconds), 2).astype(np.int64)
