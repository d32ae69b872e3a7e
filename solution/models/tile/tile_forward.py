"""Predict with the late-join tile net in numpy, without torch: solution.models.tile.tile_gnn
again.

Return what the tile nets read of a kernel, as arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler, numeric_features
from solution.features.table import distinct_rows
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import find_tiling
from solution.models.nets.forward import Weights, gelu, layer_norm, linear, mlp

# Only nets with these settings are supported.
NEEDED = {"block": "both_ways", "tokens": False, "heads": 0}


@dataclass(frozen=True)
class KernelArrays:
    """A kernel with inlined fusions, and its distinct configurations."""

    opcodes: np.ndarray  # (nodes,) int64
    numeric: np.ndarray  # (nodes, NUM_NUMERIC) float32
    edge_index: np.ndarray  # (2, edges) int64, from operand to consumer
    output: int  # the node of the tiled tensor
    table: np.ndarray  # (distinct configs, columns) float32


def describe_kernel(graph: Graph) -> KernelArrays:
    """Return the arrays of the nodes and of the distinct configurations."""
    kernel = inline_fusions(graph)
    return KernelArrays(
        opcodes=kernel.node_opcodes.astype(np.int64),
        numeric=numeric_features(kernel),
        edge_index=kernel.edges.T[::-1].copy(),
        output=find_tiling(kernel).node,
        table=distinct_rows(graph),
    )


class TileForward:
    """A trained tile net that only predicts."""

    scores_beside_a_list = True

    def __init__(
        self, settings: Mapping[str, Any], weights: Weights, scalers: Mapping[str, Scaler]
    ) -> None:
        other = {name: settings[name] for name in NEEDED if settings[name] != NEEDED[name]}
        if other:
            raise ValueError(f"has the settings {other}, expected {NEEDED}")
        self._blocks = int(settings["blocks"])
        self._weights, self._scalers = weights, scalers

    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, lower is faster."""
        arrays, weights = describe_kernel(graph), self._weights
        opcodes = weights["opcode.weight"][arrays.opcodes]
        numeric = self._scalers["numeric"](arrays.numeric)
        x = mlp(np.concatenate([opcodes, numeric], axis=1), weights, "node")
        for number in range(self._blocks):
            x = self._convolve(x, arrays.edge_index, f"blocks.{number}")
        pooled = np.concatenate([x.mean(axis=0), x.max(axis=0), x[arrays.output]])
        kernel = linear(pooled[None], weights, "kernel")
        configs = mlp(self._scalers["table"](arrays.table), weights, "config")
        joined = np.concatenate([configs, np.repeat(kernel, len(configs), axis=0)], axis=1)
        scores = mlp(gelu(linear(joined, weights, "joint.0")), weights, "joint.3")
        return scores[:, 0][graph.distinct.inverse]

    def _convolve(self, x: np.ndarray, edges: np.ndarray, name: str) -> np.ndarray:
        """Apply a BothWaysBlock: messages of operands and of consumers have separate weights."""
        messages = linear(x, self._weights, f"{name}.from_operands.lin_r")
        for side, (sources, targets) in (("operands", edges), ("consumers", edges[::-1])):
            mean = _mean_of_neighbours(x, sources, targets)
            messages += linear(mean, self._weights, f"{name}.from_{side}.lin_l")
        return x + gelu(layer_norm(messages, self._weights, f"{name}.norm"))


def _mean_of_neighbours(x: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the mean (nodes, width) of x over each target's sources; 0 if it has none."""
    sums = np.zeros_like(x)
    np.add.at(sums, targets, x[sources])
    counts = np.bincount(targets, minlength=len(x)).astype(np.float32)
    return sums / np.maximum(counts, 1)[:, None]
