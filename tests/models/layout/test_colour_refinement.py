"""Colours and what numba compiles of them: against a net that computes each configuration alone,
numpy's plan and torch's operations."""

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
from solution.models.layout import colour_refinement, compiled, layout_forward, layout_gnn
from solution.models.layout.colour_refinement import (
    Colours,
    Marks,
    Round,
    number_colours,
    refine,
)
from solution.models.layout.layout_gnn import (
    DeviceRound,
    LayoutGnn,
    LayoutGnnSettings,
    LayoutInputs,
    Receiving,
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
@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 6), st.integers(1, 3))
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


def test_predictions_compare_all_candidates_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 6), st.integers(0, 40))
def test_sparse_products_add_one_by_one(seed: int, rows: int, columns: int, most: int) -> None:
    """Without torch to the byte, for the order of sums decides what float32 numbers round to."""
    generator = np.random.default_rng(seed)
    own = draw_rows(generator, rows, columns, most)
    starts, column, values, _ = own
    x = generator.normal(size=(columns, 3)).astype(np.float32)
    dense, expected = torch.zeros(rows, columns), np.zeros((rows, 3), np.float32)
    for row in range(rows):
        for entry in range(starts[row], starts[row + 1]):
            dense[row, column[entry]] += values[entry]
            expected[row] += values[entry] * x[column[entry]]
    assert own.product(x).tobytes() == expected.tobytes()
    large = generator.integers(0, 2**64, (columns, 2), np.uint64)
    counted = [[int(large[column[a:b], k].astype(object).sum()) % 2**64 for k in range(2)]
               for a, b in itertools.pairwise(starts.tolist())]  # fmt: skip
    assert sum_entries(starts, column, large).tolist() == counted
    matrix, weight = SparseMatrix(own, torch.device("cpu")), torch.randn(rows, 3)
    tensor = torch.from_numpy(x).requires_grad_()
    product = matrix @ tensor
    torch.testing.assert_close(product, dense @ tensor)
    (gradient,) = torch.autograd.grad((product * weight).sum(), tensor)
    torch.testing.assert_close(gradient, dense.T @ weight)
    with torch.autocast("cpu", torch.bfloat16):  # products with weights may be short, sums not
        assert torch.equal(matrix @ tensor, product)


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


CPU = torch.device("cpu")


def draw_round(generator: np.random.Generator, before: int, after: int, marked: int) -> Round:
    """Of colours that add up no message, one or several."""
    rows = draw_rows(generator, after, 3 * before, most=5)
    colours = np.sort(generator.permutation(after)[:marked])
    return Round(
        rows._replace(starts=rows.starts.astype(np.int32), columns=rows.columns.astype(np.int32)),
        Marks(colours, generator.normal(size=(len(colours), 3)).astype(np.float32)),
        generator.integers(0, before, after).astype(np.int32),
    )


def receive(receiving: Receiving, tensors: list[Tensor], norm: nn.LayerNorm) -> list[Tensor]:
    """Values, and the gradients of what they are made of."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    values = receiving.receive(leaves[0], leaves[1], leaves[2], norm)
    upwards = torch.linspace(-1, 2, values.numel()).reshape(values.shape)
    found = torch.autograd.grad(values, [*leaves, norm.weight, norm.bias], upwards)
    return [values.detach(), *found]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    before=st.integers(1, 9),
    after=st.integers(1, 12),
    marked=st.integers(0, 12),
    half=st.integers(1, 40),
)
def test_values_and_gradients_are_those_of_torch(
    seed: int, before: int, after: int, marked: int, half: int
) -> None:
    generator = np.random.default_rng(seed)
    own = draw_round(generator, before, after, marked)
    sizes = [(3 * before, half), (before, 2 * half), (len(own.marks.colours), half)]
    tensors = [torch.from_numpy(generator.normal(size=size).astype(np.float32)) for size in sizes]
    norm = nn.LayerNorm(half)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    expected = receive(DeviceRound(own, CPU), tensors, norm)
    found = receive(compiled.CompiledRound(own), tensors, norm)
    # Where a colour adds up nothing, its norm makes 316 times as much of what is rounded.
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_short_numbers_are_summed_in_long_ones() -> None:
    generator = np.random.default_rng(0)
    own, norm = draw_round(generator, 5, 7, 3), nn.LayerNorm(4)
    sizes = [(15, 4), (5, 8), (3, 4)]
    short = [torch.randn(size).bfloat16() for size in sizes]
    found = compiled.CompiledRound(own).receive(short[0], short[1], short[2], norm)
    messages, kept, extra = (tensor.float() for tensor in short)
    assert torch.equal(found, compiled.CompiledRound(own).receive(messages, kept, extra, norm))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_number_that_is_none_stays_one(bad: float) -> None:
    """A net that diverges has to be seen, where it does."""
    generator, norm = np.random.default_rng(0), nn.LayerNorm(4)
    own = draw_round(generator, 5, 20, 0)
    messages = torch.from_numpy(generator.normal(size=(15, 4)).astype(np.float32))
    messages[3] = bad
    tensors = [messages, torch.zeros(5, 8), torch.zeros(0, 4)]
    expected = receive(DeviceRound(own, CPU), tensors, norm)
    found = receive(compiled.CompiledRound(own), tensors, norm)
    assert 0 < expected[0].isnan().sum() < expected[0].numel()
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.isnan(), other.isnan())


@pytest.mark.parametrize("wrong", range(3))
def test_tensors_of_another_round_are_refused(wrong: int) -> None:
    own = draw_round(np.random.default_rng(0), 5, 7, 3)
    tensors = [torch.zeros(15, 4), torch.zeros(5, 8), torch.zeros(3, 4)]
    tensors[wrong] = tensors[wrong][1:]
    with pytest.raises(ValueError, match="given shapes"):
        receive(compiled.CompiledRound(own), tensors, nn.LayerNorm(4))


def test_weights_that_changed_since_are_refused() -> None:
    """As torch's own operations refuse to give a gradient at weights that are no longer there."""
    own, norm = draw_round(np.random.default_rng(0), 5, 7, 3), nn.LayerNorm(4)
    messages = torch.randn(15, 4, requires_grad=True)
    values = compiled.CompiledRound(own).receive(
        messages, torch.zeros(5, 8), torch.zeros(3, 4), norm
    )
    with torch.no_grad():
        norm.weight.mul_(3)
    with pytest.raises(RuntimeError, match="inplace operation"):
        values.sum().backward()


@pytest.mark.parametrize("most", [1, 5, 60])
def test_functions_are_as_exact_as_they_say(most: float) -> None:
    x = np.linspace(-most, most, 20_001, dtype=np.float32)
    found = np.array([(compiled._erf(one), compiled._density(one)) for one in x])
    wide = torch.from_numpy(x).double()
    np.testing.assert_allclose(found[:, 0], torch.erf(wide), rtol=0, atol=4e-7)
    exact = torch.exp(-wide.square() / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found[:, 1], exact, rtol=0, atol=2e-6)


@pytest.mark.parametrize("half", [8, 24])
def test_gradients_do_not_depend_on_where_arrays_lie(half: int) -> None:
    """A compiled loop may compare the addresses of its arrays, and then sum in another order."""
    generator, count, before = np.random.default_rng(0), 12, 6
    entries = compiled._list_entries(draw_round(generator, before, count, marked=4))
    shapes = (count, 2 * half), (count, half), (count,), (half,), (half,)
    gradient, *rest = (generator.normal(size=shape).astype(compiled.FLOAT) for shape in shapes)
    found = set()
    for gap in (*range(4 * half), 1 << 16):
        memory = np.zeros(gradient.size + gap + 3 * half, compiled.FLOAT)
        near, rows = memory[: gradient.size].reshape(gradient.shape), memory[gradient.size + gap :]
        near[:] = gradient
        gradients = compiled._hand_back(near, rows.reshape(3, half), *rest, 3 * before, *entries)
        found.add(b"".join(array.tobytes() for array in gradients))
    assert len(found) == 1
