"""Describe the columns of a feature table: name, unit, reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray | float]  # {column: values (configs,), or one number for all}


@dataclass(frozen=True)
class Feature:
    """One column of a feature table."""

    name: str
    unit: str  # "log" means a natural logarithm
    reason: str  # one line of text: why the column helps


def numbered(name: str, unit: str, reason: str, count: int) -> tuple[Feature, ...]:
    """Return features NAME_0, NAME_1, ... for a list of `count` entries."""
    return tuple(Feature(f"{name}_{number}", unit, reason) for number in range(count))


def as_rows(columns: Columns, features: Sequence[Feature], count: int) -> np.ndarray:
    """Return a table (count, features) float32 of the columns, in the order of `features`."""
    rows = np.empty((count, len(features)), np.float32)
    for column, feature in enumerate(features):
        rows[:, column] = columns[feature.name]
    return rows
