"""Predict with the layout net in numpy; same arithmetic as solution.models.layout.layout_gnn.

A *pair* is a configurable node together with one of the layouts that configurations give it.
A *colour* of a node is one of the distinct values that it takes over configurations
(solution.models.layout.colour_refinement); a *round* is one round of message passing. The net's
arithmetic is implemented three times. The times below are processor times on one core, for programs
of 10,449 and of 200 nodes.

* torch, solution.models.layout.layout_gnn: trains on any device, and is the only code for a GPU.
* compiled, solution.models.layout.compiled: colours and rounds on a CPU, called from torch. Without
  it a training step takes 1.5 and 1.3 times as long, a prediction 1.7 and 2.0 times.
* here, numpy: imports neither torch nor numba. The first `rank` of a process takes 0.6 s; the
  compiled code would add 0.8 to 1.0 s, and 8 to 13 s if numba has to compile it first. The
  functions up to `centre` are computed by numpy, or written as ONNX files by
  solution.serving.onnx_export.

With a fixed reference list, solution.models.layout.listed_net uses the same functions to compute
only what changes: for a program of 2,984 nodes, a configuration close to one that was computed
before takes 2.5 ms instead of 16.

tests/models/layout/test_implementations.py asserts that the implementations agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain.codebook import Codebook, share_of_pairs
from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours
from solution.features.layout import tensors
from solution.features.nodes import Scaler, numeric_features
from solution.features.operations import configurable_shares, tensor_shares
from solution.features.preparation import PRUNINGS
from solution.models.layout.colour_refinement import (
    NUM_SHARES,
    ColourPlan,
    Structure,
    find_pooling,
    plan_colours,
)
from solution.models.nets.forward import (
    Layers,
    NumpyLayers,
    Value,
    Weights,
    embed_nodes,
    mlp,
    standardise,
)

# besides tensors.FEATURES: the share of configurations with the layout, and its logarithm
NUM_PAIR_FEATURES = len(tensors.FEATURES) + 2


@dataclass(frozen=True)
class LayoutArrays:
    """The layout net's inputs for a graph: arrays of its nodes after pruning, of its (node, layout)
    pairs and of its distinct configurations."""

    opcodes: np.ndarray  # (nodes,) int64: opcode number of each node
    numeric: np.ndarray  # (nodes, NUM_NUMERIC) float32: numeric node features
    # (pairs, 18) int8: the layout of each (node, layout) pair, its 18 numbers shifted to 0 ... 6
    pair_tokens: np.ndarray
    # (pairs, NUM_PAIR_FEATURES) float32: see describe_pairs
    pair_features: np.ndarray
    # (distinct configs,) bool: the reference list, which sets means, deviations and frequencies
    listed: np.ndarray
    structure: Structure
    # constraints on the tensors that have several layout constraints
    ordered: tensors.Ordered


def describe_graph(graph: Graph, pruning: str, hops: int) -> LayoutArrays:
    """Return the layout net's inputs: nodes and edges pruned by `pruning` (a name in PRUNINGS) and
    `hops`; features of layouts are computed from the whole graph."""
    pairs = graph.layouts
    pruned = PRUNINGS[pruning](graph, hops)
    consumer, producer = pruned.edges.T
    shares = np.zeros((pruned.num_nodes, NUM_SHARES), np.float32)
    shares[:, 0] = 1 / pruned.num_nodes
    shares[pruned.configurable, 1] = configurable_shares(graph)[:, 0]
    shares[pruned.configurable, 2:] = tensor_shares(graph)
    return LayoutArrays(
        opcodes=pruned.node_opcodes.astype(np.int64),
        numeric=numeric_features(pruned),
        pair_tokens=pairs.layouts + np.int8(1),
        pair_features=describe_pairs(graph, pairs, share_of_pairs(pairs, graph.listed)),
        listed=graph.listed_distinct,
        structure=Structure(
            operands=Neighbours.operands(pruned.edges, pruned.num_nodes),
            consumers=Neighbours.consumers(pruned.edges, pruned.num_nodes),
            configurable=pruned.configurable,
            shares=shares,
            constraints=tensors.find_constraints(pruned),
            codebook=pairs,
        ),
        ordered=tensors.find_ordered(pruned),
    )


def describe_pairs(graph: Graph, pairs: Codebook, share: np.ndarray) -> np.ndarray:
    """Return features (pairs, NUM_PAIR_FEATURES) float32 of (node, layout) pairs. The last two are
    a frequency and its logarithm: `share` (pairs,), the share of the reference list's
    configurations that use the pair, but at least the share of one configuration."""
    count = graph.num_configs if graph.listed is None else graph.listed.sum()
    least = np.maximum(share, 1 / count)
    described = tensors.describe_layouts(graph, pairs)
    return np.column_stack([described, least, np.log(least)]).astype(np.float32)


CHUNK_PAIRS = 1 << 19  # at most this many (node, configuration) pairs are numbered at once
CHUNK_COLOURS = 1 << 17  # about this many distinct node values are in memory at once
BLOCK = 1 << 11  # number of distinct node values that a round of message passing computes at once
Embedded = tuple[np.ndarray, np.ndarray]  # the two results of `embed`


def embed(layers: Layers[Value], opcodes: Value, numeric: Value) -> tuple[Value, Value]:
    """Return the vectors of nodes, and these multiplied by a weight matrix of the pair MLP, as two
    arrays (nodes, width)."""
    nodes = embed_nodes(layers, opcodes, numeric)
    return nodes, layers.linear(nodes, "pair.node")


def configure(
    layers: Layers[Value], nodes: Value, first: Value, node: Value, tokens: Value, features: Value
) -> Value:
    """Return a vector (pairs, width) for each (node, layout) pair. `nodes`, `first`: the two
    results of `embed`; `node`: (pairs,) the node of each pair; `tokens`: (pairs, 18) its layout;
    `features`: (pairs, NUM_PAIR_FEATURES), not yet standardised."""
    named = layers.flatten(layers.gather(layers.weight("token.weight"), tokens))
    layouts = layers.linear(
        layers.join(named, layers.scale(features, "pair_features")), "pair.layout"
    )
    hidden = layers.gelu(layers.add(layers.gather(first, node), layouts))
    added = layers.linear(hidden, "pair.out")
    return layers.add(layers.gather(nodes, node), added)


def send(layers: Layers[Value], x: Value, number: int) -> tuple[Value, Value]:
    """Return a round's messages (3 x colours before, half), and the values `kept` (colours before,
    outputs) that the round's result is added to: x (colours before, width), multiplied by a matrix
    if the width changes. The three messages of a colour are adjacent: to itself (with the round's
    bias), to its consumers, and to its operands."""
    name = f"blocks.{number}"
    half = len(layers.weights[f"{name}.norm.weight"])
    messages = layers.split_rows(layers.linear(x, f"{name}.weights"), half)
    has_skip = f"{name}.skip.weight" in layers.weights
    return messages, layers.linear(x, f"{name}.skip") if has_skip else x


def receive(
    layers: Layers[Value], sums: Value, marked: Value, marks: Value, kept: Value, number: int
) -> Value:
    """Return the distinct node values (colours after, outputs) after a round. `sums`: of messages
    (colours after, half), may be overwritten; `marked`: numbers of the colours with layout
    constraints; `marks`: features of these constraints; `kept`: see `send`, for each colour the
    value at the same node and configuration before the round."""
    name = f"blocks.{number}"
    sums = layers.add_rows(sums, marked, layers.linear(marks, f"{name}.extra"))
    update = layers.scale_rows(sums, f"{name}.norm")
    positive = layers.gelu(update)
    negative = layers.subtract(positive, update)  # GELU(-u) = GELU(u) - u
    return layers.add(layers.join(positive, negative), kept)


def centre(weights: Weights, rounds: int) -> Weights:
    """Return weights with which the vectors that each round adds up (messages, and extra features
    multiplied by their weights) have mean 0, so that the norm need not subtract a mean. Move the
    bias to the message of a node to itself."""
    centred = dict(weights)
    for number in range(rounds):
        name = f"blocks.{number}"
        product = weights[f"{name}.weights.weight"]  # weights of the three messages, concatenated
        parts = product.reshape(3, -1, product.shape[1])
        parts = parts - parts.mean(axis=1, keepdims=True)
        centred[f"{name}.weights.weight"] = parts.reshape(product.shape)
        extra, bias = weights[f"{name}.extra.weight"], centred.pop(f"{name}.extra.bias")
        centred[f"{name}.extra.weight"] = extra - extra.mean(axis=0)
        centred[f"{name}.weights.bias"] = np.pad(bias - bias.mean(axis=0), (0, 2 * len(bias)))
    return centred


class LayoutForward:
    """A trained layout net for prediction only, in numpy."""

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
        """Return the net itself, which is in numpy already."""
        return self

    def describe(self, graph: Graph) -> LayoutArrays:
        """Return the arrays that the net reads from a graph."""
        return describe_graph(graph, self._pruning, self._hops)

    def embed(self, arrays: LayoutArrays) -> Embedded:
        """Return the vectors of the graph's nodes, and these vectors times weights of the pair MLP:
        the results of the function embed."""
        return embed(self.layers, arrays.opcodes, arrays.numeric)

    def sum(self, arrays: LayoutArrays, embedded: Embedded) -> np.ndarray:
        """Return weighted sums (configs, NUM_SHARES x outputs) of the last round's node values."""
        structure = arrays.structure
        node_of_pair = structure.configurable[structure.codebook.node]
        pairs = configure(
            self.layers, *embedded, node_of_pair, arrays.pair_tokens, arrays.pair_features
        )
        nodes, _ = embedded
        rows = np.arange(len(structure.codebook.codes))[:, None]
        sums, begin = [], 0
        # For the first chunk, assume that a node has a different value in each configuration.
        step = max(1, CHUNK_COLOURS // len(nodes))
        while begin < len(rows):
            part = rows[begin : begin + step]
            found, colours = self._sum(structure, part, nodes, pairs)
            sums.append(found)
            begin += len(part)
            # size of the next chunk: about CHUNK_COLOURS distinct values, judging by this chunk
            fitting = len(part) * CHUNK_COLOURS // colours
            step = max(1, min(fitting, 4 * step, CHUNK_PAIRS // len(nodes)))
        return np.concatenate(sums)

    def read_out(self, compared: np.ndarray) -> np.ndarray:
        """Return scores (configs,), given standardised sums over nodes (configs, values)."""
        return mlp(self.layers, compared, "readout")[:, 0]

    def _sum(
        self, structure: Structure, rows: np.ndarray, nodes: np.ndarray, pairs: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Return weighted sums over nodes (configs, NUM_SHARES x outputs), and how many colours the
        last round has. `rows`: (configs, 1) rows of codes; `nodes`, `pairs`: vectors (n, width)."""
        plan = plan_colours([structure], rows, self.rounds)
        x = self.layers.replace_rows(nodes[plan.nodes], plan.configured, pairs[plan.pairs])
        x = self._run_rounds(plan, x)
        pooled = find_pooling([structure], plan.last).product(x)
        pooled = pooled.reshape(-1, NUM_SHARES * x.shape[1])
        differences, others = np.split(pooled[1:], 2)
        return pooled[0] + differences + others, len(x)

    def _run_rounds(self, plan: ColourPlan, x: np.ndarray) -> np.ndarray:
        """Return the distinct node values (colours, outputs) after all rounds. `x`: the distinct
        values (colours, width) before the first round."""
        for number, (aggregation, marks, parents) in enumerate(plan.rounds):
            messages, kept = send(self.layers, x, number)
            x = np.empty((len(parents), kept.shape[1]), np.float32)
            # one block of values at a time, so that arrays stay in the processor's cache
            for begin in range(0, len(x), BLOCK):
                part = slice(begin, begin + BLOCK)
                sums = aggregation.cut(part).product(messages)
                first, last = np.searchsorted(marks.colours, (begin, begin + BLOCK))
                marked = marks.colours[first:last] - begin, marks.values[first:last]
                x[part] = receive(self.layers, sums, *marked, kept[parents[part]], number)
        return x
