"""Find identical configurations.

In layout:xla:default 44% of the configurations equal another one, although their runtimes differ.
"""

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Distinct:
    """Indices of the distinct configurations, and the distinct one that each configuration equals.

    `configs[first]` are the distinct configurations, in order of appearance or, for a codebook, of
    its codes. `configs[first][inverse]` are all configurations again; `scores[inverse]` likewise
    expands scores of the distinct ones.
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
