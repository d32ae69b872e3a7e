"""Attention a block of queries at a time against the whole, and against the formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.models.nets.layers import SelfAttention, attend


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 9),
    lists=st.integers(1, 3),
    scale=st.sampled_from([None, 1.0, 0.3]),
    max_pairs=st.integers(1, 400),
    seed=st.integers(0, 100),
)
def test_blocks_of_queries_give_what_all_at_once_gives(
    rows: int, lists: int, scale: float | None, max_pairs: int, seed: int
) -> None:
    torch.manual_seed(seed)
    query, key = torch.randn(2, lists, 2, rows, 4)
    value = torch.randn(lists, 2, rows, 5)
    factor = 4**-0.5 if scale is None else scale
    expected = torch.softmax(factor * query @ key.transpose(-1, -2), dim=-1) @ value
    found = attend(query, key, value, scale, max_pairs)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_blocks_have_the_gradient_of_all_at_once() -> None:
    torch.manual_seed(0)
    gradients = []
    rows = torch.randn(2, 7, 4)
    for max_pairs in (1 << 20, 10):
        x = rows.clone().requires_grad_()
        attend(x, x, x, 1.0, max_pairs).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("heads", "head_width"), [(2, None), (3, 5)])
def test_self_attention_is_its_formula_in_every_list(heads: int, head_width: int | None) -> None:
    torch.manual_seed(0)
    attention, x = SelfAttention(8, heads, head_width), torch.randn(5, 3, 8)
    size = head_width or 8 // heads
    assert attention.project.out_features == 3 * heads * size
    found = attention(x)
    for place in range(3):
        query, key, value = attention.project(attention.norm(x[:, place])).chunk(3, dim=-1)
        parts = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            logits = query[:, own] @ key[:, own].T / size**0.5
            parts.append(torch.softmax(logits, dim=1) @ value[:, own])
        expected = x[:, place] + attention.out(torch.cat(parts, dim=1))
        torch.testing.assert_close(found[:, place], expected, atol=1e-5, rtol=1e-4)
