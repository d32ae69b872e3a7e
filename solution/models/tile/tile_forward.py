"""Predict with the tile net in numpy; same arithmetic as solution.models.tile.tile_gnn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler, numeric_features
from solution.features.table import distinct_rows
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import find_tiling
from solution.models.nets.forward import Layers, NumpyLayers, Value, Weights, embed_nodes, mlp

# Only tile nets with these settings are supported here: without tokens and attention.
NEEDED = {"block": "both_ways", "tokens": False, "heads": 0}


@dataclass(frozen=True)
class KernelArrays:
    """The tile net's inputs: a kernel with inlined fusions, its distinct configurations."""

    opcodes: np.ndarray  # (nodes,) int64: opcode number of each node
    numeric: np.ndarray  # (nodes, NUM_NUMERIC) float32: numeric node features
    edge_index: np.ndarray  # (2, edges) int64, from operand to consumer
    output: int  # the node whose tensor is tiled
    table: np.ndarray  # (distinct configs, columns) float32: features of each configuration


def describe_kernel(graph: Graph) -> KernelArrays:
    """Return the tile net's inputs for a kernel graph."""
    kernel = inline_fusions(graph)
    return KernelArrays(
        opcodes=kernel.node_opcodes.astype(np.int64),
        numeric=numeric_features(kernel),
        edge_index=kernel.edges.T[::-1].copy(),
        output=find_tiling(kernel).node,
        table=distinct_rows(graph),
    )


class TileForward:
    """A trained tile net for prediction only, in numpy."""

    scores_beside_a_list = True

    def __init__(
        self, settings: Mapping[str, Any], weights: Weights, scalers: Mapping[str, Scaler]
    ) -> None:
        self._blocks, self._layers = count_blocks(settings), NumpyLayers(weights, scalers)

    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, lower is faster."""
        arrays = describe_kernel(graph)
        x = embed_nodes(self._layers, arrays.opcodes, arrays.numeric)
        for number in range(self._blocks):
            sources, targets = arrays.edge_index
            x = convolve(self._layers, x, sources, targets, number)
        scores = read_out(self._layers, x, np.array([arrays.output]), arrays.table)
        return scores[:, 0][graph.distinct.inverse]


def count_blocks(settings: Mapping[str, Any]) -> int:
    """Return the number of convolutions; raise ValueError if settings differ from NEEDED."""
    other = {name: settings[name] for name in NEEDED if settings[name] != NEEDED[name]}
    if other:
        raise ValueError(f"has the settings {other}, expected {NEEDED}")
    return int(settings["blocks"])


def convolve(layers: Layers[Value], x: Value, sources: Value, targets: Value, number: int) -> Value:
    """Return node values (nodes, width) after convolution `number`, a BothWaysBlock; `sources`,
    `targets`: (edges,) operand and consumer of each edge."""
    name = f"blocks.{number}"
    messages = layers.linear(x, f"{name}.from_operands.lin_r")
    for side, ends in (("operands", (sources, targets)), ("consumers", (targets, sources))):
        mean = layers.mean_of(x, *ends)
        messages = layers.add(messages, layers.linear(mean, f"{name}.from_{side}.lin_l"))
    return layers.add(x, layers.gelu(layers.layer_norm(messages, f"{name}.norm")))


def read_out(layers: Layers[Value], x: Value, output: Value, table: Value) -> Value:
    """Return scores (configs, 1) from x (nodes, width), the kernel's `output` node (1,), and the
    `table` (configs, columns), not yet standardised."""
    pooled = layers.join(layers.mean_row(x), layers.most_row(x), layers.gather(x, output))
    configs = mlp(layers, layers.scale(table, "table"), "config")
    kernel = layers.repeat(layers.linear(pooled, "kernel"), configs)
    joined = layers.linear(layers.join(configs, kernel), "joint.0")
    return mlp(layers, layers.gelu(joined), "joint.3")
