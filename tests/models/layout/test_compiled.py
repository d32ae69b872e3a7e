"""What numba compiles: the plan of colours against numpy's, a round against torch's operations."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from solution.models.layout import colour_refinement, compiled
from solution.models.layout.colour_refinement import ColourPlan, Marks, Round
from solution.models.layout.compiled import CompiledRound, _density, _erf
from solution.models.layout.layout_forward import describe_graph
from solution.models.layout.layout_gnn import DeviceRound, Receiving
from solution.models.nets.forward import SparseRows
from tests.made.graphs import make_layout_graph
from tests.models.layout.test_colour_refinement import draw_rows

CPU = torch.device("cpu")
WIDTH = 3


def compute(
    derived: ColourPlan, pooling: SparseRows, values: np.ndarray, configs: int
) -> np.ndarray:
    """Sums over nodes (configs, sums) of what rounds make of `values` (nodes + pairs, WIDTH)."""
    x = values[derived.nodes]
    x[derived.configured] += values[len(values) - 1 - derived.pairs]
    for aggregation, marks, parents in derived.rounds:
        extra = marks.expand(len(parents))
        messages = np.repeat(x, 3, axis=0) * np.tile(np.float32([[1], [2], [3]]), (len(x), 1))
        received = aggregation.product(messages) + extra.sum(axis=1, keepdims=True)
        x = np.tanh(received) + x[parents]
    pooled = pooling.product(x).reshape(1 + 2 * configs, -1)
    return pooled[0] + pooled[1 : 1 + configs] + pooled[1 + configs :]


@settings(max_examples=40, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 50), min_size=1, max_size=3),
    configs=st.integers(1, 40),
    rounds=st.integers(0, 3),
)
def test_it_is_what_is_compiled(seeds: list[int], configs: int, rounds: int) -> None:
    graphs = [make_layout_graph(seed, configs=40) for seed in seeds]
    structures = [describe_graph(graph, "neighbourhood", 1).structure for graph in graphs]
    generator = np.random.default_rng(configs)
    known = [len(own.codebook.codes) for own in structures]  # some are there twice
    rows = np.stack([np.resize(generator.permutation(size), configs) for size in known], axis=1)
    expected = colour_refinement.plan_colours(structures, rows, rounds)
    found = compiled.plan_colours(structures, rows, rounds)
    size = sum(own.num_nodes + own.num_pairs for own in structures)
    values = generator.normal(size=(size, WIDTH)).astype(np.float32)
    pooling = colour_refinement.find_pooling(structures, found.last)
    sums = compute(found, pooling, values, configs)
    wanted = compute(
        expected, colour_refinement.find_pooling(structures, expected.last), values, configs
    )
    np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-5)
    for one, other in zip(found.rounds, expected.rounds, strict=True):
        assert len(one.parents) == len(other.parents)  # no colour is there twice


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
    found = receive(CompiledRound(own), tensors, norm)
    # Where a colour adds up nothing, its norm makes 316 times as much of what is rounded.
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_short_numbers_are_summed_in_long_ones() -> None:
    generator = np.random.default_rng(0)
    own, norm = draw_round(generator, 5, 7, 3), nn.LayerNorm(4)
    sizes = [(15, 4), (5, 8), (3, 4)]
    short = [torch.randn(size).bfloat16() for size in sizes]
    found = CompiledRound(own).receive(short[0], short[1], short[2], norm)
    messages, kept, extra = (tensor.float() for tensor in short)
    assert torch.equal(found, CompiledRound(own).receive(messages, kept, extra, norm))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_number_that_is_none_stays_one(bad: float) -> None:
    """A net that diverges has to be seen, where it does."""
    generator, norm = np.random.default_rng(0), nn.LayerNorm(4)
    own = draw_round(generator, 5, 20, 0)
    messages = torch.from_numpy(generator.normal(size=(15, 4)).astype(np.float32))
    messages[3] = bad
    tensors = [messages, torch.zeros(5, 8), torch.zeros(0, 4)]
    expected = receive(DeviceRound(own, CPU), tensors, norm)
    found = receive(CompiledRound(own), tensors, norm)
    assert 0 < expected[0].isnan().sum() < expected[0].numel()
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.isnan(), other.isnan())


@pytest.mark.parametrize("wrong", range(3))
def test_tensors_of_another_round_are_refused(wrong: int) -> None:
    own = draw_round(np.random.default_rng(0), 5, 7, 3)
    tensors = [torch.zeros(15, 4), torch.zeros(5, 8), torch.zeros(3, 4)]
    tensors[wrong] = tensors[wrong][1:]
    with pytest.raises(ValueError, match="given shapes"):
        receive(CompiledRound(own), tensors, nn.LayerNorm(4))


def test_weights_that_changed_since_are_refused() -> None:
    """As torch's own operations refuse to give a gradient at weights that are no longer there."""
    own, norm = draw_round(np.random.default_rng(0), 5, 7, 3), nn.LayerNorm(4)
    messages = torch.randn(15, 4, requires_grad=True)
    values = CompiledRound(own).receive(messages, torch.zeros(5, 8), torch.zeros(3, 4), norm)
    with torch.no_grad():
        norm.weight.mul_(3)
    with pytest.raises(RuntimeError, match="inplace operation"):
        values.sum().backward()


@pytest.mark.parametrize("most", [1, 5, 60])
def test_functions_are_as_exact_as_they_say(most: float) -> None:
    x = np.linspace(-most, most, 20_001, dtype=np.float32)
    found = np.array([(_erf(one), _density(one)) for one in x])
    wide = torch.from_numpy(x).double()
    np.testing.assert_allclose(found[:, 0], torch.erf(wide), rtol=0, atol=4e-7)
    exact = torch.exp(-wide.square() / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found[:, 1], exact, rtol=0, atol=2e-6)
