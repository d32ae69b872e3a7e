"""Return numeric node features for the nets: compressed by logarithms, then standardised.

Raw features run from 0 to 3e8; every top solution of the competition scales them. The scaler is
fitted on training graphs only and saved with the model.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.operations import num_bytes, num_operations, tensor_ranks

NUM_DERIVED = 6
NUM_NUMERIC = vocabulary.NUM_NODE_FEATURES + NUM_DERIVED


def compress(values: np.ndarray) -> np.ndarray:
    """Return sign(x) log(1 + |x|), which keeps 0 and the sign and shrinks large values."""
    return np.sign(values) * np.log1p(np.abs(values))


def expand(values: np.ndarray) -> np.ndarray:
    """Invert `compress`."""
    return np.sign(values) * np.expm1(np.abs(values))


# encodings of node features before standardisation: compressed, or as they are in the files
ENCODINGS = ("logarithms", "plain")


def numeric_features(graph: Graph) -> np.ndarray:
    """Return features (nodes, NUM_NUMERIC) float32 of a graph with correct padding, as logarithms
    (see `compress`), not yet standardised: the 140 features of the file, rank, bytes, number of
    arithmetic operations, number of operands, number of consumers, and whether the node is
    configurable."""
    consumers = np.bincount(graph.edges[:, 1], minlength=graph.num_nodes)
    operands = np.bincount(graph.edges[:, 0], minlength=graph.num_nodes)
    configurable = np.zeros(graph.num_nodes)
    configurable[graph.configurable] = 1
    sizes = tensor_ranks(graph), num_bytes(graph), num_operations(graph)
    derived = np.stack([*sizes, operands, consumers, configurable], axis=1)
    features = np.concatenate([graph.node_features, derived], axis=1)
    return compress(features).astype(np.float32)


@dataclass(frozen=True)
class Scaler:
    """A function that standardises the columns of a table; a constant column becomes 0."""

    mean: np.ndarray  # (columns,) float32, mean of each column
    scale: np.ndarray  # (columns,) float32, 1 / standard deviation; 0 for a constant column

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return `rows` (rows, columns) scaled, as float32."""
        return ((rows - self.mean) * self.scale).astype(np.float32)


def fit_scaler(tables: Iterable[np.ndarray]) -> Scaler:
    """Return a Scaler fitted on the rows of all `tables` (rows, columns), read one by one."""
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for table in tables:
        wide = table.astype(np.float64)
        count += len(wide)
        total = total + wide.sum(axis=0)
        squares = squares + (wide**2).sum(axis=0)
    mean = total / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
    varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1)
    scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
    return Scaler(mean.astype(np.float32), scale.astype(np.float32))
