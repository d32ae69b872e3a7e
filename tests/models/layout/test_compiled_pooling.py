"""Sums over nodes that are compiled against the product with a matrix."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.models.layout.compiled_pooling import CompiledPooling
from solution.models.layout.compiled_steps import derive_steps
from solution.models.layout.computation import DevicePooling, Pooling
from solution.models.layout.inputs import describe_graph
from solution.models.layout.steps import Structure
from tests.made.graphs import make_layout_graph

WIDTH = 3


def pool(pooling: Pooling, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums, and the gradient of what is summed."""
    own = x.clone().requires_grad_()
    sums = pooling.pool(own)
    upwards = torch.linspace(-1, 2, sums.numel()).reshape(sums.shape)
    (gradient,) = torch.autograd.grad(sums, own, upwards)
    return sums.detach(), gradient


def draw_structures(seeds: list[int]) -> list[Structure]:
    graphs = [make_layout_graph(seed, configs=40) for seed in seeds]
    return [describe_graph(graph, "neighbourhood", 1).structure for graph in graphs]


@settings(max_examples=40, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 50), min_size=1, max_size=3),
    configs=st.integers(1, 40),
    rounds=st.integers(0, 2),
)
def test_sums_and_gradients_are_those_of_the_matrix(
    seeds: list[int], configs: int, rounds: int
) -> None:
    graphs, generator = draw_structures(seeds), np.random.default_rng(configs)
    rows = np.stack(
        [generator.integers(0, len(own.codebook.codes), configs) for own in graphs], axis=1
    )
    last = derive_steps(graphs, rows, rounds).last
    assert (np.diff(last.nodes) >= 0).all()  # a node's colours are beside each other
    x = torch.from_numpy(generator.normal(size=(len(last.nodes), WIDTH)).astype(np.float32))
    expected = pool(DevicePooling(graphs, last, torch.device("cpu")), x)
    found = pool(CompiledPooling(graphs, last), x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_other_colours_are_refused() -> None:
    graphs = draw_structures([1])
    last = derive_steps(graphs, np.zeros((4, 1), np.int64), 1).last
    with pytest.raises(ValueError, match=f"expected {len(last.nodes)}"):
        CompiledPooling(graphs, last).pool(torch.zeros(len(last.nodes) - 1, WIDTH))
