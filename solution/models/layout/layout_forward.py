"""Predict with the layout net in numpy, without torch: solution.models.layout.layout_gnn again."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler
from solution.models.layout.inputs import LayoutArrays, describe_graph
from solution.models.layout.steps import NUM_SHARES, derive_steps, find_pooling
from solution.models.nets.forward import (
    Weights,
    gelu,
    linear,
    mlp,
    scale_rows,
    standardise,
)

CHUNK_PAIRS = 1 << 19  # (node, configuration) pairs numbered in one chunk
CHUNK_COLOURS = 1 << 17  # colours in memory at once, as estimated beforehand
BLOCK = 1 << 11  # colours computed in one block of a round


class LayoutForward:
    """A trained layout net that only predicts."""

    scores_beside_a_list = True

    def __init__(
        self, settings: Mapping[str, Any], weights: Weights, scalers: Mapping[str, Scaler]
    ) -> None:
        self._pruning, self._hops = str(settings["pruning"]), int(settings["hops"])
        self.rounds = len(settings["rounds"])
        self._weights, self._scalers = _centre(weights, self.rounds), scalers

    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, lower is faster."""
        arrays = self.describe(graph)
        compared = standardise(self.sum(arrays), arrays.listed)
        return self.read_out(compared)[graph.distinct.inverse]

    def in_numpy(self) -> "LayoutForward":
        """Return the net itself."""
        return self

    def describe(self, graph: Graph) -> LayoutArrays:
        """Return the arrays that the net reads of a graph."""
        return describe_graph(graph, self._pruning, self._hops)

    def sum(self, arrays: LayoutArrays, rows: np.ndarray | None = None) -> np.ndarray:
        """Return sums over nodes (rows, values) of some rows of the codes, by default of all."""
        nodes, first = self.embed(arrays)
        own = arrays.structure.configurable[arrays.structure.codebook.node]
        layouts = self.embed_pairs(arrays.pair_tokens, arrays.pair_features)
        pairs = self.configure(nodes[own], first[own], layouts)
        asked = (np.arange(len(arrays.structure.codebook.codes)) if rows is None else rows)[:, None]
        sums, begin = [], 0
        step = max(1, CHUNK_COLOURS // len(nodes))  # assuming that they share no colours
        while begin < len(asked):
            part = asked[begin : begin + step]
            found, colours = self._sum(arrays, part, nodes, pairs)
            sums.append(found)
            begin += len(part)
            # As many as fill a chunk if the next ones share as many colours.
            fitting = len(part) * CHUNK_COLOURS // colours
            step = max(1, min(fitting, 4 * step, CHUNK_PAIRS // len(nodes)))
        return np.concatenate(sums)

    def read_out(self, compared: np.ndarray) -> np.ndarray:
        """Return scores (configs,) of standardised sums (configs, values)."""
        return mlp(compared, self._weights, "readout")[:, 0]

    def embed(self, arrays: LayoutArrays) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes (nodes, width) without layouts, and their first products with one."""
        opcodes = self._weights["opcode.weight"][arrays.opcodes]
        numeric = self._scalers["numeric"](arrays.numeric)
        nodes = mlp(np.concatenate([opcodes, numeric], axis=1), self._weights, "node")
        return nodes, linear(nodes, self._weights, "pair.node")

    def embed_pairs(self, pair_tokens: np.ndarray, pair_features: np.ndarray) -> np.ndarray:
        """Return what each pair's layout adds to its node's first product: (pairs, width)."""
        tokens = self._weights["token.weight"][pair_tokens]
        features = self._scalers["pair_features"](pair_features)
        width = math.prod(tokens.shape[1:])  # reshape cannot infer -1 if nothing is configurable
        joined = np.concatenate([tokens.reshape(-1, width), features], axis=1)
        return linear(joined, self._weights, "pair.layout")

    def configure(self, nodes: np.ndarray, first: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        """Return nodes (n, width) with layouts (n, width), whose first products are `first` (n,
        width)."""
        return nodes + linear(gelu(first + layouts), self._weights, "pair.out")

    def _sum(
        self, arrays: LayoutArrays, rows: np.ndarray, nodes: np.ndarray, pairs: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Return sums over nodes (rows, values) of configurations, and their number of colours.

        Args:
            nodes: (nodes, width) without layouts.
            pairs: (pairs, width) with layouts.
        """
        steps = derive_steps([arrays.structure], rows, self.rounds)
        x = nodes[steps.nodes]
        x[steps.configured] = pairs[steps.pairs]
        for number, (aggregation, marks, parents) in enumerate(steps.rounds):
            messages, kept = self.send(x, number)
            x = np.empty((len(parents), 2 * messages.shape[1]), np.float32)
            # A block at a time, so that intermediate arrays stay in the processor's cache.
            for begin in range(0, len(x), BLOCK):
                part = slice(begin, begin + BLOCK)
                sums = aggregation.cut(part).product(messages)
                first, last = np.searchsorted(marks.colours, (begin, begin + BLOCK))
                known = marks.colours[first:last] - begin, marks.values[first:last]
                self._receive(sums, *known, kept[parents[part]], number, x[part])
        pooling = find_pooling([arrays.structure], steps.last)
        pooled = pooling.product(x).reshape(-1, NUM_SHARES * x.shape[1])
        differences, others = np.split(pooled[1:], 2)
        return pooled[0] + differences + others, len(x)

    def send(self, x: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a ColourBlock's messages (3 x colours before, half) and the kept values."""
        name = f"blocks.{number}"
        messages = linear(x, self._weights, f"{name}.weights").reshape(len(x), 3, -1)
        # each colour sums exactly one message to itself
        messages[:, 0] += self._weights[f"{name}.extra.bias"]
        skip = f"{name}.skip"
        has_skip = f"{skip}.weight" in self._weights
        kept = linear(x, self._weights, skip) if has_skip else x
        return messages.reshape(3 * len(x), -1), kept

    def receive(
        self, sums: np.ndarray, extra: np.ndarray, kept: np.ndarray, number: int
    ) -> np.ndarray:
        """Return a ColourBlock's values (colours after, outputs) where messages add up to
        `sums`."""
        values = np.empty((len(sums), 2 * sums.shape[1]), np.float32)
        marked = np.flatnonzero(extra.any(axis=1))
        self._receive(sums, marked, extra[marked], kept, number, values)
        return values

    def _receive(
        self,
        sums: np.ndarray,
        marked: np.ndarray,
        extra: np.ndarray,
        kept: np.ndarray,
        number: int,
        out: np.ndarray,
    ) -> None:
        name, half = f"blocks.{number}", sums.shape[1]
        sums[marked] += extra @ self._weights[f"{name}.extra.weight"].T
        update = scale_rows(sums, self._weights, f"{name}.norm")
        positive = gelu(update)
        np.add(positive, kept[:, :half], out=out[:, :half])
        np.subtract(positive, update, out=update)  # GELU(-u) = GELU(u) - u
        np.add(update, kept[:, half:], out=out[:, half:])


def _centre(weights: Weights, rounds: int) -> Weights:
    """Return the same net with blocks whose sums have mean 0, so that the norm need not subtract
    it."""
    centred = dict(weights)
    for number in range(rounds):
        name = f"blocks.{number}"
        product = weights[f"{name}.weights.weight"]  # of three messages
        parts = product.reshape(3, -1, product.shape[1])
        parts = parts - parts.mean(axis=1, keepdims=True)
        centred[f"{name}.weights.weight"] = parts.reshape(product.shape)
        for part in (f"{name}.extra.weight", f"{name}.extra.bias"):
            centred[part] = weights[part] - weights[part].mean(axis=0)
    return centred
