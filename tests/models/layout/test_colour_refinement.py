"""Sharing colours changes nothing: against a net that computes every configuration alone."""

import itertools
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours, starts_of
from solution.features.layout.tensors import CONFLICTS
from solution.models.layout import colour_refinement, layout_forward, layout_gnn
from solution.models.layout.colour_refinement import Colours, number_colours, number_small, refine
from solution.models.layout.layout_gnn import (
    LayoutGnn,
    LayoutGnnSettings,
    LayoutInputs,
    derive_computation,
    prepare,
)
from solution.models.nets.forward import SparseRows, sum_entries
from solution.models.nets.sparse import SparseMatrix
from solution.models.nets.training_settings import TrainingSettings
from tests.made.elsewhere import compute_as_elsewhere
from tests.made.graphs import make_layout_graph

Seen = dict[tuple[int, int], tuple[object, ...]]


def draw_edges(seed: int, nodes: int) -> np.ndarray:
    """Random edges (edges, 2) from a smaller to a larger number, some of them twice."""
    generator = np.random.default_rng(seed)
    pairs = [pair for pair in itertools.combinations(range(nodes), 2) if generator.random() < 0.3]
    return np.array([*pairs, *pairs[:2]], np.int64).reshape(-1, 2)


def neighbours(edges: np.ndarray, nodes: int) -> tuple[Neighbours, Neighbours]:
    """Operands and consumers."""
    turned = edges[:, ::-1]
    return Neighbours.operands(turned, nodes), Neighbours.consumers(turned, nodes)


@pytest.mark.parametrize("block", [1, 9, colour_refinement.BLOCK])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(1, 7),
    configs=st.integers(1, 6),
    rounds=st.integers(1, 3),
)
def test_colours_are_the_distinct_neighbourhoods(
    block: int, seed: int, nodes: int, configs: int, rounds: int
) -> None:
    edges = draw_edges(seed, nodes)
    layouts = np.random.default_rng(seed).integers(0, 2, (nodes, configs))
    colours = number_colours((np.arange(nodes)[:, None] * 2 + layouts).astype(np.uint64))
    seen: Seen = {(v, c): (v, int(layouts[v, c])) for v in range(nodes) for c in range(configs)}
    for _ in range(rounds):
        with mock.patch.object(colour_refinement, "BLOCK", block):
            colours = refine(colours, *neighbours(edges, nodes))
        seen = {
            (v, c): (
                seen[v, c],
                tuple(sorted(repr(seen[p, c]) for p, q in edges.tolist() if q == v)),
                tuple(sorted(repr(seen[q, c]) for p, q in edges.tolist() if p == v)),
            )
            for v, c in seen
        }
    assert_same_partition(colours, seen)


def assert_same_partition(colours: Colours, seen: Seen) -> None:
    """Equal numbers where, and only where, the neighbourhoods are equal."""
    for a, b in itertools.combinations(seen, 2):
        assert (colours.numbers[a] == colours.numbers[b]) == (seen[a] == seen[b])
    for number, place in enumerate(zip(colours.nodes, colours.configs, strict=True)):
        assert colours.numbers[place] == number


def pool_alone(net: LayoutGnn, inputs: LayoutInputs, graph: Graph, config: int) -> Tensor:
    """The sums of one configuration, node by node, by the formulas in the docstrings."""
    structure = inputs.structure
    described = torch.cat([net.opcode(inputs.opcodes), inputs.numeric], dim=-1)
    nodes = nn.Sequential(*net.node)(described)
    x = list(nodes)
    for place, node in enumerate(structure.configurable):
        pair = structure.codebook.pairs(np.array([config]))[0, place]
        tokens = net.token(inputs.layouts[inputs.pair_layout[pair]].long()).flatten()
        layout = torch.cat([tokens, inputs.pair_features[pair]])
        hidden = functional.gelu(net.pair.node(nodes[node]) + net.pair.layout(layout))
        x[node] = nodes[node] + net.pair.out(hidden)
    extra = torch.zeros(len(x), len(CONFLICTS))
    constrained = structure.constraints.describe(structure.codebook.codes[[config]])[0]
    extra[structure.constraints.nodes] = torch.from_numpy(constrained).float()
    for block in net.blocks:
        messages = [block.weights(value).view(3, -1) for value in x]
        after = []
        for node, value in enumerate(x):
            operands = [messages[p][1] for c, p in graph.edges.tolist() if c == node]
            consumers = [messages[c][2] for c, p in graph.edges.tolist() if p == node]
            received = messages[node][0] + block.extra(extra[node])
            for group in (operands, consumers):
                received = received + (torch.stack(group).mean(0) if group else 0)
            update = block.norm(received)
            signs = functional.gelu(torch.cat([update, -update]))
            after.append(block.skip(value) + signs)
        x = after
    return (torch.from_numpy(structure.shares).T @ torch.stack(x)).flatten()


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("rounds", [(8,), (8, 8), (8, 4), (6, 10, 4)])
def test_the_net_equals_one_that_shares_nothing(
    rounds: tuple[int, ...], is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, and as on any other device."""
    if not is_compiled:
        compute_as_elsewhere(monkeypatch)
    torch.manual_seed(0)
    net = LayoutGnn(LayoutGnnSettings(width=8, rounds=rounds)).eval()
    graphs = [make_layout_graph(seed, configs=9) for seed in (1, 2)]
    inputs = [prepare(graph, "nothing", 1) for graph in graphs]
    configs = np.array([[0, 3], [4, 4], [2, 0], [0, 1]])
    scores = net.score_batch(inputs, configs)
    for column, graph in enumerate(graphs):
        rows = [pool_alone(net, inputs[column], graph, row) for row in configs[:, column]]
        pooled = torch.stack(rows)
        deviation = (pooled.var(dim=0, correction=0) + 1e-4).sqrt()
        alone = net.readout((pooled - pooled.mean(dim=0)) / deviation).squeeze(-1)
        torch.testing.assert_close(scores[:, column], alone)


def test_predictions_compare_all_candidates_whatever_the_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    net = LayoutGnn(LayoutGnnSettings(width=8, rounds=(8, 8))).eval()
    inputs = prepare(make_layout_graph(1, configs=50), "nothing", 1)
    everything = np.arange(len(inputs.structure.codebook.codes))[:, None]
    expected = net.score_batch([inputs], everything)[:, 0].detach()
    for values in (1, 7 * net.count_values(inputs), 1 << 22):
        monkeypatch.setattr(layout_gnn, "CHUNK_VALUES", values)
        np.testing.assert_allclose(net.score_graph(inputs), expected, atol=1e-5)
    backwards = net.score_batch([inputs], everything[::-1])[:, 0]
    torch.testing.assert_close(backwards.flip(0).detach(), expected)


@pytest.mark.parametrize("size", [1, 70, 1 << 17])
def test_without_torch_the_scores_are_the_same_whatever_the_chunks(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    settings = LayoutGnnSettings(width=8, rounds=(8, 6), training=TrainingSettings(epochs=1))
    ranker = settings.build(0).fit([make_layout_graph(0)], [])
    for name in ("CHUNK_COLOURS", "CHUNK_PAIRS", "BLOCK"):
        monkeypatch.setattr(layout_forward, name, size)
    graph = make_layout_graph(1, configs=50)
    expected = ranker.predict(graph)
    np.testing.assert_allclose(ranker.in_numpy().predict(graph), expected, atol=1e-4)


def test_fewer_colours_than_configurations_times_nodes() -> None:
    inputs = prepare(make_layout_graph(0, configs=40), "neighbourhood", 1)
    configs = np.arange(len(inputs.structure.codebook.codes))[:, None]
    plan = derive_computation([inputs.structure], configs, 2, torch.device("cpu"))
    assert len(plan.nodes) < len(configs) * len(inputs.opcodes) / 4


def draw_rows(generator: np.random.Generator, rows: int, columns: int, most: int) -> SparseRows:
    """Rows without entries, entries in any order, several at one place."""
    starts = starts_of(generator.integers(0, most + 1, rows))
    column = generator.integers(0, columns, starts[-1])
    values = generator.normal(size=starts[-1]).astype(np.float32)
    return SparseRows(starts, column, values, columns)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 6), st.integers(0, 5))
def test_sparse_product_and_its_gradient_are_those_of_the_dense_one(
    seed: int, rows: int, columns: int, most: int
) -> None:
    generator = np.random.default_rng(seed)
    own = draw_rows(generator, rows, columns, most)
    starts, column, values, _ = own
    dense = torch.zeros(rows, columns)
    for row in range(rows):
        for entry in range(starts[row], starts[row + 1]):
            dense[row, column[entry]] += values[entry]
    matrix = SparseMatrix(own, torch.device("cpu"))
    x = torch.randn(columns, 3, requires_grad=True)
    weight = torch.randn(rows, 3)
    product = matrix @ x
    torch.testing.assert_close(product, dense @ x)
    (gradient,) = torch.autograd.grad((product * weight).sum(), x)
    torch.testing.assert_close(gradient, dense.T @ weight)
    with torch.autocast("cpu", torch.bfloat16):  # products with weights may be short, sums not
        assert torch.equal(matrix @ x, product)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 6), st.integers(0, 40))
def test_a_product_without_torch_adds_one_entry_after_the_other(
    seed: int, rows: int, columns: int, most: int
) -> None:
    """To the byte, for the order in which float32 numbers are added decides what they round to."""
    generator = np.random.default_rng(seed)
    own = draw_rows(generator, rows, columns, most)
    starts, column, values, _ = own
    x = generator.normal(size=(columns, 3)).astype(np.float32)
    expected = np.zeros((rows, 3), np.float32)
    for row in range(rows):
        for entry in range(starts[row], starts[row + 1]):
            expected[row] += values[entry] * x[column[entry]]
    assert own.product(x).tobytes() == expected.tobytes()
    large = generator.integers(0, 2**64, (columns, 2), np.uint64)
    counted = [[int(large[column[a:b], k].astype(object).sum()) % 2**64 for k in range(2)]
               for a, b in itertools.pairwise(starts.tolist())]  # fmt: skip
    assert sum_entries(starts, column, large).tolist() == counted


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 30))
def test_labels_are_numbered_node_by_node(seed: int, nodes: int, configs: int) -> None:
    """Also equal ones of two nodes apart; in the order of labels, and of equal ones the first."""
    generator = np.random.default_rng(seed)
    few = generator.integers(0, 2**50, (nodes, 3), np.uint64)
    labels = np.take_along_axis(few, generator.integers(0, 3, (nodes, configs)), axis=1)
    colours = number_colours(labels)
    own = [(node, label) for node in range(nodes) for label in sorted(set(labels[node].tolist()))]
    for place, number in np.ndenumerate(colours.numbers):
        assert own[number] == (place[0], labels[place])
    assert colours.nodes.tolist() == [node for node, _ in own]
    rows = labels.tolist()
    assert colours.configs.tolist() == [rows[node].index(label) for node, label in own]
    repeated = np.bincount(colours.numbers.ravel())
    for node, usual in enumerate(colours.find_most_frequent()):
        assert colours.nodes[usual] == node
        assert repeated[usual] == repeated[colours.nodes == node].max()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 30), st.integers(0, 5))
def test_small_labels_are_numbered_alike(seed: int, nodes: int, configs: int, more: int) -> None:
    """Without sorting, and where some numbers are not used."""
    labels = np.random.default_rng(seed).integers(0, 4, (nodes, configs))
    labels += 4 * np.arange(nodes)[:, None]
    expected = number_colours(labels.astype(np.uint64))
    found = number_small(labels, 4 * nodes + more)
    for name in ("numbers", "nodes", "configs"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
