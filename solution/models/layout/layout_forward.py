"""The layout net without torch: the same sums as solution.models.layout.layout_gnn, in numpy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler
from solution.models.layout.inputs import LayoutArrays, describe_graph
from solution.models.layout.steps import NUM_SHARES, Steps, derive_steps
from solution.models.nets.forward import (
    Weights,
    gelu,
    layer_norm,
    linear,
    mlp,
    standardise,
)

CHUNK_VALUES = 1 << 23  # (configuration, node) values of x, had they no colour in common


class LayoutForward:
    """A trained layout net that only predicts."""

    scores_beside_a_list = True

    def __init__(
        self, settings: Mapping[str, Any], weights: Weights, scalers: Mapping[str, Scaler]
    ) -> None:
        self._pruning, self._hops = str(settings["pruning"]), int(settings["hops"])
        self._rounds = len(settings["rounds"])
        self._weights, self._scalers = weights, scalers

    def predict(self, graph: Graph) -> np.ndarray:
        """Scores (num_configs,) float32, lower is faster."""
        arrays = describe_graph(graph, self._pruning, self._hops)
        nodes = self._embed(arrays)
        first = linear(nodes, self._weights, "pair.node")
        layouts = self._embed_pairs(arrays)
        step = max(1, CHUNK_VALUES // nodes.size)
        rows = np.arange(len(graph.layouts.codes))[:, None]
        sums = [
            self._sum(arrays, nodes, first, layouts, rows[begin : begin + step])
            for begin in range(0, len(rows), step)
        ]
        compared = standardise(np.concatenate(sums), arrays.listed)
        return mlp(compared, self._weights, "readout")[:, 0][graph.distinct.inverse]

    def _embed(self, arrays: LayoutArrays) -> np.ndarray:
        """The nodes (nodes, width) without layouts."""
        opcodes = self._weights["opcode.weight"][arrays.opcodes]
        numeric = self._scalers["numeric"](arrays.numeric)
        return mlp(np.concatenate([opcodes, numeric], axis=1), self._weights, "node")

    def _embed_pairs(self, arrays: LayoutArrays) -> np.ndarray:
        """What the layout of each pair adds to the first product of its node: (pairs, width)."""
        tokens = self._weights["token.weight"][arrays.pair_tokens]
        features = self._scalers["pair_features"](arrays.pair_features)
        joined = np.concatenate([tokens.reshape(len(tokens), -1), features], axis=1)
        return linear(joined, self._weights, "pair.layout")

    def _sum(
        self,
        arrays: LayoutArrays,
        nodes: np.ndarray,
        first: np.ndarray,
        layouts: np.ndarray,
        rows: np.ndarray,
    ) -> np.ndarray:
        """Sums over nodes (configs, values) of the configurations in the rows of the codes."""
        steps = derive_steps([arrays.structure], rows, self._rounds)
        x = nodes[steps.nodes]
        hidden = gelu(first[steps.nodes[steps.configured]] + layouts[steps.pairs])
        x[steps.configured] += linear(hidden, self._weights, "pair.out")
        for number in range(self._rounds):
            x = self._convolve(x, steps, number)
        return steps.pooling.product(x).reshape(len(rows), NUM_SHARES * x.shape[1])

    def _convolve(self, x: np.ndarray, steps: Steps, number: int) -> np.ndarray:
        """A ColourBlock: (colours before, inputs) -> (colours after, outputs)."""
        name, (aggregation, extra, parents) = f"blocks.{number}", steps.rounds[number]
        messages = linear(x, self._weights, f"{name}.weights").reshape(3 * len(x), -1)
        sums = aggregation.product(messages)
        sums += linear(extra, self._weights, f"{name}.extra")
        update = layer_norm(sums, self._weights, f"{name}.norm")
        half = update.shape[1]
        both = np.empty((len(update), 2 * half), np.float32)
        both[:, :half] = gelu(update)
        np.subtract(both[:, :half], update, out=both[:, half:])  # GELU(-u) = GELU(u) - u
        skip = f"{name}.skip"
        kept = linear(x, self._weights, skip) if f"{skip}.weight" in self._weights else x
        both += kept[parents.columns]
        return both
