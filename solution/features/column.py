"""What a column of a feature table is called, what it counts, and why it is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray | float]  # (configs,) each, or one number for all of them


@dataclass(frozen=True)
class Feature:
    """One column of a feature table."""

    name: str
    unit: str  # log means a natural logarithm
    reason: str  # one line


def numbered(name: str, unit: str, reason: str, count: int) -> tuple[Feature, ...]:
    """Features NAME_0 ... of a list, one for each of its entries."""
    return tuple(Feature(f"{name}_{number}", unit, reason) for number in range(count))


def as_rows(columns: Columns, features: Sequence[Feature], count: int) -> np.ndarray:
    """The columns of the `features`, in their order, as rows (count, features) float32."""
    rows = np.empty((count, len(features)), np.float32)
    for place, feature in enumerate(features):
        rows[:, place] = columns[feature.name]
    return rows
