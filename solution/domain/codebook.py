"""Layout configurations, each distinct layout stored once.

A config tensor (configs, nodes, 18) float32 repeats few distinct rows. A codebook holds, for each
configurable node, the layouts that it takes, and per configuration and node a code of one or two
bytes: 36 to 72 times smaller. Identical configurations share one row of codes. The pairs (node,
layout) are few as well, so a model can embed each of them once instead of once a configuration.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.duplicates import Distinct

LOWEST, HIGHEST = vocabulary.LAYOUT_UNSET, vocabulary.MAX_RANK - 1


@dataclass(frozen=True, eq=False)
class Codebook:
    """The layouts that each configurable node takes, and which of them each configuration uses."""

    # (pairs, 18) int8: the layouts of the first configurable node, then of the second, ...
    layouts: np.ndarray
    starts: np.ndarray  # (configurable + 1,) int64: node n has layouts[starts[n]:starts[n + 1]]
    # (distinct configs, configurable) uint8, 16 or 32: index among the node's layouts
    codes: np.ndarray
    rows: np.ndarray  # (configs,) integers: the row of `codes` of each configuration

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.setflags(write=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the config tensor: (configs, configurable, 18)."""
        return len(self.rows), self.codes.shape[1], vocabulary.NUM_LAYOUT_FEATURES

    @property
    def node(self) -> np.ndarray:
        """The index (pairs,) of each pair's node among the configurable nodes."""
        return np.repeat(np.arange(self.codes.shape[1]), np.diff(self.starts))

    @property
    def distinct(self) -> Distinct:
        """The distinct configurations, in the order of the codes."""
        return Distinct(np.unique(self.rows, return_index=True)[1], self.rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """The four arrays by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def pairs(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the indices into `layouts` (k, configurable) int64 of the k `rows` of codes.

        Only these rows are read, which matters if `codes` is a memory-mapped file.
        """
        return self.codes[rows] + self.starts[:-1]

    def expand(self) -> np.ndarray:
        """Return the whole config tensor (configs, configurable, 18) int8."""
        return self.layouts[self.pairs(self.rows)]

    def select(self, configs: np.ndarray) -> "Codebook":
        """Return the codebook of the configurations `configs` (k,); the layouts stay."""
        used, rows = np.unique(self.rows[configs], return_inverse=True)
        # For all configurations the codes are not copied.
        codes = self.codes if len(used) == len(self.codes) else self.codes[used]
        return dataclasses.replace(self, codes=codes, rows=rows.astype(np.int64))


def check_codebook(book: Codebook, *, with_codes: bool = True) -> None:
    """Check that the four arrays of a file fit each other.

    Args:
        with_codes: whether every code is checked, which reads all of a memory-mapped file.

    Raises:
        ValueError: an index into the layouts, nodes or rows is out of range.
    """
    dimensions = {name: array.ndim for name, array in book.arrays().items()}
    if dimensions != {"layouts": 2, "starts": 1, "codes": 2, "rows": 1}:
        raise ValueError(f"the arrays have {dimensions} dimensions")
    if book.layouts.shape[1] != vocabulary.NUM_LAYOUT_FEATURES:
        raise ValueError(f"layouts has shape {book.layouts.shape}")
    counts = np.diff(book.starts)
    ends = book.starts[[0, -1]].tolist() if len(book.starts) == 1 + book.codes.shape[1] else []
    if ends != [0, len(book.layouts)] or (counts < 0).any():
        raise ValueError(f"starts does not divide the {len(book.layouts)} layouts among the nodes")
    if ((book.layouts < LOWEST) | (book.layouts > HIGHEST)).any():
        raise ValueError(f"layouts holds other numbers than {LOWEST} to {HIGHEST}")
    if ((book.rows < 0) | (book.rows >= len(book.codes))).any():
        raise ValueError(f"rows names other rows than the {len(book.codes)} of codes")
    if with_codes and (book.codes >= counts).any():
        raise ValueError("codes names a layout that its node does not have")
