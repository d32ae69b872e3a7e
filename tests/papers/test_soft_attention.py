"""The mask of 1 and 0.1 and the attention behind it, by hand and against slow references."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.papers.soft_attention import SoftAttention, apply_mask
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings, prepare_kernel
from tests.made.graphs import make_tile_graph


def test_the_mask_of_three_nodes_by_hand() -> None:
    """0 and 1 are adjacent. Weights 1, 1, 0.1 of node 0 and 1, and 0.1, 0.1, 1 of node 2."""
    x = torch.tensor([[1.0], [2.0], [10.0]])
    found = apply_mask(x, torch.tensor([[0], [1]]), 0.1)
    expected = [(1 + 2 + 1) / 2.1, (1 + 2 + 1) / 2.1, (0.1 + 0.2 + 10) / 1.2]
    torch.testing.assert_close(found[:, 0], torch.tensor(expected))


EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@settings(max_examples=50, deadline=None)
@given(EDGES, st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 100))
def test_the_mask_is_a_product_with_a_matrix(
    edges: list[tuple[int, int]], others: float, seed: int
) -> None:
    """Also where an edge is there twice, both ways, or from a node to itself."""
    torch.manual_seed(seed)
    x = torch.randn(7, 2, 3)
    mask = np.full((7, 7), others)
    np.fill_diagonal(mask, 1)
    for one, other in edges:
        mask[one, other] = mask[other, one] = 1
    mask /= mask.sum(axis=1, keepdims=True)
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    found = apply_mask(x, edge_index, others)
    np.testing.assert_allclose(found, np.einsum("ij,jcw->icw", mask, x.numpy()), atol=1e-5)


def test_the_mask_comes_before_the_attention_which_is_of_16_heads_of_32() -> None:
    torch.manual_seed(0)
    block, edges = SoftAttention(8, 16, 32, mask=0.1), torch.tensor([[0, 1], [1, 2]])
    assert block.attention.project.out_features == 3 * 16 * 32
    x = torch.randn(5, 2, 8)
    masked = block.attention(apply_mask(x, edges, 0.1))
    torch.testing.assert_close(block(x, edges), masked + block.mlp(block.norm(masked)))
    block.mask = None
    plain = block.attention(x)
    torch.testing.assert_close(block(x, edges), plain + block.mlp(block.norm(plain)))


@pytest.mark.parametrize("join", ["late", "early"])
def test_kernels_attend_to_themselves_alone(join: str) -> None:
    torch.manual_seed(0)
    settings = TpuGraphsTileSettings(width=8, join=join, heads=2, head_width=4)
    net = settings.build(0).make_net().eval()
    kernels = [prepare_kernel(make_tile_graph(seed)) for seed in range(3)]
    configs = np.array([[0, 1, 2], [3, 0, 1]])
    together = net.score_batch(kernels, configs)
    for row, column in np.ndindex(*configs.shape):
        alone = net.score_graph(kernels[column])[configs[row, column]]
        assert alone == pytest.approx(together[row, column].item(), abs=1e-4)
