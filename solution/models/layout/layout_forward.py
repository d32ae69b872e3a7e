"""The layout net without torch: the same sums as solution.models.layout.layout_gnn, in numpy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler
from solution.models.layout.inputs import LayoutArrays, describe_graph
from solution.models.layout.steps import NUM_SHARES, derive_steps
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
        self.rounds = len(settings["rounds"])
        self._weights, self._scalers = weights, scalers

    def predict(self, graph: Graph) -> np.ndarray:
        """Scores (num_configs,) float32, lower is faster."""
        arrays = self.describe(graph)
        compared = standardise(self.sum(arrays), arrays.listed)
        return self.read_out(compared)[graph.distinct.inverse]

    def in_numpy(self) -> "LayoutForward":
        """The net itself."""
        return self

    def describe(self, graph: Graph) -> LayoutArrays:
        """What the net takes of the graph."""
        return describe_graph(graph, self._pruning, self._hops)

    def sum(self, arrays: LayoutArrays, rows: np.ndarray | None = None) -> np.ndarray:
        """Sums over nodes (rows, values) of some rows of the codes, by default of all."""
        nodes, first = self.embed(arrays)
        layouts = self.embed_pairs(arrays.pair_tokens, arrays.pair_features)
        step = max(1, CHUNK_VALUES // nodes.size)
        asked = (np.arange(len(arrays.structure.codebook.codes)) if rows is None else rows)[:, None]
        sums = [
            self._sum(arrays, nodes, first, layouts, asked[begin : begin + step])
            for begin in range(0, len(asked), step)
        ]
        return np.concatenate(sums)

    def read_out(self, compared: np.ndarray) -> np.ndarray:
        """Scores (configs,) of standardised sums (configs, values)."""
        return mlp(compared, self._weights, "readout")[:, 0]

    def embed(self, arrays: LayoutArrays) -> tuple[np.ndarray, np.ndarray]:
        """The nodes (nodes, width) without layouts, and their first products with one."""
        opcodes = self._weights["opcode.weight"][arrays.opcodes]
        numeric = self._scalers["numeric"](arrays.numeric)
        nodes = mlp(np.concatenate([opcodes, numeric], axis=1), self._weights, "node")
        return nodes, linear(nodes, self._weights, "pair.node")

    def embed_pairs(self, pair_tokens: np.ndarray, pair_features: np.ndarray) -> np.ndarray:
        """What the layout of each pair adds to the first product of its node: (pairs, width)."""
        tokens = self._weights["token.weight"][pair_tokens]
        features = self._scalers["pair_features"](pair_features)
        joined = np.concatenate([tokens.reshape(len(tokens), -1), features], axis=1)
        return linear(joined, self._weights, "pair.layout")

    def configure(self, nodes: np.ndarray, first: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        """Nodes (n, width) with layouts (n, width), whose first products are `first` (n, width)."""
        return nodes + linear(gelu(first + layouts), self._weights, "pair.out")

    def _sum(
        self,
        arrays: LayoutArrays,
        nodes: np.ndarray,
        first: np.ndarray,
        layouts: np.ndarray,
        rows: np.ndarray,
    ) -> np.ndarray:
        """Sums over nodes (configs, values) of the configurations in the rows of the codes."""
        steps = derive_steps([arrays.structure], rows, self.rounds)
        x = nodes[steps.nodes]
        own = steps.nodes[steps.configured]
        x[steps.configured] = self.configure(nodes[own], first[own], layouts[steps.pairs])
        for number, (aggregation, extra, parents) in enumerate(steps.rounds):
            messages, kept = self.send(x, number)
            x = self.receive(aggregation.product(messages), extra, kept[parents.columns], number)
        return steps.pooling.product(x).reshape(len(rows), NUM_SHARES * x.shape[1])

    def send(self, x: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Of a ColourBlock: the messages (3 x colours before, half), and what each keeps."""
        name = f"blocks.{number}"
        messages = linear(x, self._weights, f"{name}.weights").reshape(3 * len(x), -1)
        skip = f"{name}.skip"
        has_skip = f"{skip}.weight" in self._weights
        return messages, linear(x, self._weights, skip) if has_skip else x

    def receive(
        self, sums: np.ndarray, extra: np.ndarray, kept: np.ndarray, number: int
    ) -> np.ndarray:
        """Of a ColourBlock: the values (colours after, outputs) where messages add up to `sums`."""
        name = f"blocks.{number}"
        sums += linear(extra, self._weights, f"{name}.extra")
        update = layer_norm(sums, self._weights, f"{name}.norm")
        half = update.shape[1]
        both = np.empty((len(update), 2 * half), np.float32)
        both[:, :half] = gelu(update)
        np.subtract(both[:, :half], update, out=both[:, half:])  # GELU(-u) = GELU(u) - u
        both += kept
        return both
