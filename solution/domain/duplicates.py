"""Find identical configurations: 44% of layout:xla:default are, with different runtimes."""

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Distinct:
    """The distinct configurations, and the distinct one that each configuration equals.

    `configs[first]` are the distinct ones, in order of appearance or, for a codebook, of its codes;
    `configs[first][inverse]` are all of them again, so scores of the distinct ones expand by the
    same indexing.
    """

    first: np.ndarray  # (distinct,) int64
    inverse: np.ndarray  # (configs,) int64

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Average `values` (configs,) over identical configurations: (distinct,)."""
        return np.bincount(self.inverse, weights=values) / np.bincount(self.inverse)


def deduplicate(configs: np.ndarray) -> Distinct:
    """Group identical rows of `configs` (configs, ...) by a cryptographic hash of their bytes."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(len(configs), np.int64)
    for index, row in enumerate(np.ascontiguousarray(configs)):
        digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        if digest not in seen:
            seen[digest] = len(first)
            first.append(index)
        inverse[index] = seen[digest]
    return Distinct(np.array(first, np.int64), inverse)
