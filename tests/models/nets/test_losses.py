"""Ranking losses against slow loops, and what minimising them must mean."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn import functional

from solution.models.nets.convolutions import BothWaysBlock
from solution.models.nets.layers import SelfAttention, attend
from solution.models.nets.losses import LOSSES, blend, list_mle
from solution.models.nets.training_loop import learning_rate_factor, list_visits
from solution.models.nets.training_settings import TrainingSettings

COLUMNS = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.floats(-3, 3, width=32)
)


def list_pairs(r: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of which the first is slower."""
    return [(i, j) for i, j in itertools.permutations(range(len(r)), 2) if r[i] > r[j]]


def lose_list(s: np.ndarray, r: np.ndarray) -> float:
    strength = -s[np.argsort(r, kind="stable")]
    rests = (strength[index:] for index in range(len(strength)))
    return float(np.mean([np.log(np.exp(rest).sum()) - rest[0] for rest in rests]))


def lose_squares(s: np.ndarray, r: np.ndarray) -> float:
    logs = np.log(r) - np.log(r).mean()
    return float(np.mean((s - (logs / logs.std() if len(set(r)) > 1 else 0)) ** 2))


# The loss of one graph's scores and runtimes, by loops.
SLOW: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "pairwise_hinge": lambda s, r: np.mean(
        [max(0.0, 1 - (s[i] - s[j])) for i, j in list_pairs(r)] or [0.0]
    ),
    "pairwise_logistic": lambda s, r: np.mean(
        [np.log1p(np.exp(s[j] - s[i])) for i, j in list_pairs(r)] or [0.0]
    ),
    "soft_tau": lambda s, r: 1 - np.mean([np.tanh(s[i] - s[j]) for i, j in list_pairs(r)] or [0.0]),
    "list_mle": lose_list,
    "mean_squared_error": lose_squares,
    "runtime_squared_error": lambda s, r: np.mean((s - r / r.mean()) ** 2),
}


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=50, deadline=None)
@given(COLUMNS, st.integers(0, 1000))
def test_losses_are_means_of_formulas_over_graphs(name: str, scores: np.ndarray, seed: int) -> None:
    runtimes = np.random.default_rng(seed).integers(1, 4, scores.shape).astype(float)
    expected = np.mean([SLOW[name](s, r) for s, r in zip(scores.T, runtimes.T, strict=True)])
    tensors = torch.from_numpy(scores), torch.from_numpy(runtimes)
    assert float(LOSSES[name](*tensors)) == pytest.approx(expected)
    # the unit of runtimes does not matter
    assert float(LOSSES[name](tensors[0], 1e6 * tensors[1])) == pytest.approx(expected)


def test_a_blend_by_hand() -> None:
    """Scores 0 and 1 of runtimes 1 and 3: a hinge of 0; errors (0 - 1/2)^2 and (1 - 3/2)^2."""
    tensors = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]])
    assert float(blend("pairwise_hinge", 0.02)(*tensors)) == pytest.approx(0.02 * 0.25)
    assert float(blend("pairwise_hinge", 0.0)(*tensors)) == 0.0
    turned = tensors[0].flip(0), tensors[1]
    expected = 2 + 0.5 * ((1 - 0.5) ** 2 + 1.5**2) / 2
    assert float(blend("pairwise_hinge", 0.5)(*turned)) == pytest.approx(expected)


def test_list_mle_stays_finite_for_huge_scores() -> None:
    scores = torch.tensor([[1e4], [-1e4], [0.0]], requires_grad=True)
    loss = list_mle(scores, torch.tensor([[1.0], [2.0], [3.0]]))
    loss.backward()
    assert torch.isfinite(loss)
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


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


def test_block_equals_a_loop_over_the_edges() -> None:
    torch.manual_seed(0)
    block = BothWaysBlock(4)
    x = torch.randn(5, 3, 4)
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]  # node 4 is isolated
    edge_index = torch.tensor(edges).T
    operands, consumers = torch.zeros_like(x), torch.zeros_like(x)
    for node in range(5):
        received = [x[source] for source, target in edges if target == node]
        told = [x[target] for source, target in edges if source == node]
        operands[node] = torch.stack(received).mean(0) if received else 0
        consumers[node] = torch.stack(told).mean(0) if told else 0
    first, second = block.from_operands, block.from_consumers
    message = first.lin_l(operands) + first.lin_r(x) + second.lin_l(consumers)
    expected = x + functional.gelu(block.norm(message))
    torch.testing.assert_close(block(x, edge_index), expected)


@pytest.mark.parametrize("total", range(1, 25))
def test_the_learning_rate_warms_up_and_falls_for_any_number_of_steps(total: int) -> None:
    factors = [learning_rate_factor(step, total) for step in range(total)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == 1
    assert factors[-1] <= factors[factors.index(1.0)]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=9), st.integers(1, 50), st.integers(1, 9))
def test_an_epoch_visits_about_all(sizes: list[int], configs_per_graph: int, visits: int) -> None:
    training = TrainingSettings(configs_per_graph=configs_per_graph, visits=visits)
    times = np.bincount(list_visits(sizes, training), minlength=len(sizes))
    for size, count in zip(sizes, times, strict=True):
        assert 1 <= count <= visits
        assert count == visits or count * configs_per_graph >= size
        assert count == 1 or (count - 1) * configs_per_graph < size


@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 99)
)
def test_an_epoch_of_many_graphs_visits_large_ones_less_often(
    sizes: list[int], graphs_per_step: int, max_steps: int
) -> None:
    training = TrainingSettings(graphs_per_step=graphs_per_step, visits=9, max_steps=max_steps)
    full = np.bincount(list_visits(sizes, dataclasses.replace(training, max_steps=None)))
    times = np.bincount(list_visits(sizes, training))
    most = times.max()
    assert (times == np.minimum(full, most)).all()
    assert most == 1 or times.sum() <= max_steps * graphs_per_step
    more = np.minimum(full, most + 1)
    assert most == full.max() or more.sum() > max_steps * graphs_per_step
