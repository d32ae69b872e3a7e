"""Predict with the layout net in numpy; same arithmetic as solution.models.layout.layout_gnn.

The net's arithmetic exists three times. `python -m benchmarks.layout_implementations` measures what
each is worth; processor time, one core, programs of 10,449 and of 200 nodes:

* torch, solution.models.layout.layout_gnn: trains on any device, and is the only one on a GPU.
* compiled, solution.models.layout.compiled: colours and rounds on a CPU, under torch. Without it a
  training step takes 1.5 and 1.3 times as long, a prediction 1.7 and 2.0 times.
* here: neither torch nor numba is imported. The first `rank` of a process takes 0.6 s; what is
  compiled would add 0.8 to 1.0 s, and 8 to 13 s where numba has to compile it first. The functions
  up to `centre` are computed by numpy, and written as ONNX files by solution.serving.onnx_export.

Beside a fixed list, solution.models.layout.listed_net computes only what changes, by the same
functions: a neighbour of a known configuration of 2,984 nodes takes 2.5 ms, all nodes take 16.

tests/models/layout/test_implementations.py holds them equal.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.features.nodes import Scaler
from solution.models.layout.colour_refinement import (
    NUM_SHARES,
    ColourPlan,
    Structure,
    find_pooling,
    plan_colours,
)
from solution.models.layout.inputs import LayoutArrays, describe_graph
from solution.models.nets.forward import (
    Layers,
    NumpyLayers,
    Value,
    Weights,
    embed_nodes,
    mlp,
    standardise,
)

CHUNK_PAIRS = 1 << 19  # (node, configuration) pairs numbered in one chunk
CHUNK_COLOURS = 1 << 17  # colours in memory at once, as estimated beforehand
BLOCK = 1 << 11  # colours computed in one block of a round
Embedded = tuple[np.ndarray, np.ndarray]  # see `embed`


def embed(layers: Layers[Value], opcodes: Value, numeric: Value) -> tuple[Value, Value]:
    """Return nodes (nodes, width) without layouts, and their first products with one."""
    nodes = embed_nodes(layers, opcodes, numeric)
    return nodes, layers.linear(nodes, "pair.node")


def configure(
    layers: Layers[Value], nodes: Value, first: Value, node: Value, tokens: Value, features: Value
) -> Value:
    """Return (node, layout) pairs (pairs, width), given the node (pairs,) of each.

    Args:
        nodes, first: (nodes, width) each, see `embed`.
        tokens: (pairs, 18) of each pair's layout.
        features: (pairs, NUM_PAIR_FEATURES), unscaled.
    """
    named = layers.flatten(layers.gather(layers.weight("token.weight"), tokens))
    layouts = layers.linear(
        layers.join(named, layers.scale(features, "pair_features")), "pair.layout"
    )
    hidden = layers.gelu(layers.add(layers.gather(first, node), layouts))
    added = layers.linear(hidden, "pair.out")
    return layers.add(layers.gather(nodes, node), added)


def send(layers: Layers[Value], x: Value, number: int) -> tuple[Value, Value]:
    """Return a ColourBlock's messages (3 x colours before, half), and what a colour keeps of x.

    The first of a colour's messages, of which each colour after sums exactly one, has the bias.
    """
    name = f"blocks.{number}"
    half = len(layers.weights[f"{name}.norm.weight"])
    messages = layers.split_rows(layers.linear(x, f"{name}.weights"), half)
    has_skip = f"{name}.skip.weight" in layers.weights
    return messages, layers.linear(x, f"{name}.skip") if has_skip else x


def receive(
    layers: Layers[Value], sums: Value, marked: Value, marks: Value, kept: Value, number: int
) -> Value:
    """Return a ColourBlock's values (colours after, outputs).

    Args:
        sums: (colours after, half) of messages, which may be overwritten.
        marked, marks: the colours that have constraints, and the features of these.
        kept: (colours after, outputs) of each colour before the round.
    """
    name = f"blocks.{number}"
    sums = layers.add_rows(sums, marked, layers.linear(marks, f"{name}.extra"))
    update = layers.scale_rows(sums, f"{name}.norm")
    positive = layers.gelu(update)
    negative = layers.subtract(positive, update)  # GELU(-u) = GELU(u) - u
    return layers.add(layers.join(positive, negative), kept)


def centre(weights: Weights, rounds: int) -> Weights:
    """Return the weights as `send` and `receive` need them.

    A block's sums have mean 0, so that the norm need not subtract it, and its bias is part of the
    first message.
    """
    centred = dict(weights)
    for number in range(rounds):
        name = f"blocks.{number}"
        product = weights[f"{name}.weights.weight"]  # of three messages
        parts = product.reshape(3, -1, product.shape[1])
        parts = parts - parts.mean(axis=1, keepdims=True)
        centred[f"{name}.weights.weight"] = parts.reshape(product.shape)
        extra, bias = weights[f"{name}.extra.weight"], centred.pop(f"{name}.extra.bias")
        centred[f"{name}.extra.weight"] = extra - extra.mean(axis=0)
        centred[f"{name}.weights.bias"] = np.pad(bias - bias.mean(axis=0), (0, 2 * len(bias)))
    return centred


class LayoutForward:
    """A trained layout net that only predicts."""

    scores_beside_a_list = True

    def __init__(
        self, settings: Mapping[str, Any], weights: Weights, scalers: Mapping[str, Scaler]
    ) -> None:
        self._pruning, self._hops = str(settings["pruning"]), int(settings["hops"])
        self.rounds = len(settings["rounds"])
        self.layers = NumpyLayers(centre(weights, self.rounds), scalers)

    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, lower is faster."""
        arrays = self.describe(graph)
        compared = standardise(self.sum(arrays, self.embed(arrays)), arrays.listed)
        return self.read_out(compared)[graph.distinct.inverse]

    def in_numpy(self) -> "LayoutForward":
        """Return the net itself."""
        return self

    def describe(self, graph: Graph) -> LayoutArrays:
        """Return the arrays that the net reads of a graph."""
        return describe_graph(graph, self._pruning, self._hops)

    def embed(self, arrays: LayoutArrays) -> Embedded:
        """Return the embedded nodes, which no layout changes."""
        return embed(self.layers, arrays.opcodes, arrays.numeric)

    def sum(self, arrays: LayoutArrays, embedded: Embedded) -> np.ndarray:
        """Return sums over nodes (distinct configs, values)."""
        structure = arrays.structure
        node_of_pair = structure.configurable[structure.codebook.node]
        pairs = configure(
            self.layers, *embedded, node_of_pair, arrays.pair_tokens, arrays.pair_features
        )
        nodes, _ = embedded
        rows = np.arange(len(structure.codebook.codes))[:, None]
        sums, begin = [], 0
        step = max(1, CHUNK_COLOURS // len(nodes))  # assuming that they share no colours
        while begin < len(rows):
            part = rows[begin : begin + step]
            found, colours = self._sum(structure, part, nodes, pairs)
            sums.append(found)
            begin += len(part)
            # As many as fill a chunk if the next ones share as many colours.
            fitting = len(part) * CHUNK_COLOURS // colours
            step = max(1, min(fitting, 4 * step, CHUNK_PAIRS // len(nodes)))
        return np.concatenate(sums)

    def read_out(self, compared: np.ndarray) -> np.ndarray:
        """Return scores (configs,) of standardised sums (configs, values)."""
        return mlp(self.layers, compared, "readout")[:, 0]

    def _sum(
        self, structure: Structure, rows: np.ndarray, nodes: np.ndarray, pairs: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Return sums over nodes (rows, values) of configurations, and their number of colours.

        Args:
            nodes: (nodes, width) without layouts.
            pairs: (pairs, width) with layouts.
        """
        plan = plan_colours([structure], rows, self.rounds)
        x = self.layers.replace_rows(nodes[plan.nodes], plan.configured, pairs[plan.pairs])
        x = self._run_rounds(plan, x)
        pooled = find_pooling([structure], plan.last).product(x)
        pooled = pooled.reshape(-1, NUM_SHARES * x.shape[1])
        differences, others = np.split(pooled[1:], 2)
        return pooled[0] + differences + others, len(x)

    def _run_rounds(self, plan: ColourPlan, x: np.ndarray) -> np.ndarray:
        """Return the values (colours, outputs) after the last round."""
        for number, (aggregation, marks, parents) in enumerate(plan.rounds):
            messages, kept = send(self.layers, x, number)
            x = np.empty((len(parents), kept.shape[1]), np.float32)
            # A block at a time, so that intermediate arrays stay in the processor's cache.
            for begin in range(0, len(x), BLOCK):
                part = slice(begin, begin + BLOCK)
                sums = aggregation.cut(part).product(messages)
                first, last = np.searchsorted(marks.colours, (begin, begin + BLOCK))
                marked = marks.colours[first:last] - begin, marks.values[first:last]
                x[part] = receive(self.layers, sums, *marked, kept[parents[part]], number)
        return x
