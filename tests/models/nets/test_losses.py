"""Ranking losses against slow loops, and what minimising them must mean."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn import functional

from solution.models.nets.convolutions import BothWaysBlock
from solution.models.nets.layers import SelfAttention, attend
from solution.models.nets.losses import (
    blend,
    list_mle,
    mean_squared_error,
    pairwise_hinge,
    pairwise_logistic,
    runtime_squared_error,
    soft_tau,
)
from solution.models.nets.training_loop import learning_rate_factor, list_visits
from solution.models.nets.training_settings import TrainingSettings

COLUMNS = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.floats(-3, 3, width=32)
)


@settings(max_examples=50, deadline=None)
@given(COLUMNS, st.integers(0, 1000))
def test_pairwise_hinge_is_the_mean_over_ordered_pairs(scores: np.ndarray, seed: int) -> None:
    runtimes = np.random.default_rng(seed).integers(1, 4, scores.shape).astype(float)
    columns = []
    for column in range(scores.shape[1]):
        s, r = scores[:, column], runtimes[:, column]
        pairs = [
            max(0.0, 1 - (s[i] - s[j]))
            for i, j in itertools.permutations(range(len(s)), 2)
            if r[i] > r[j]
        ]
        columns.append(np.mean(pairs) if pairs else 0.0)
    loss = pairwise_hinge(torch.from_numpy(scores), torch.from_numpy(runtimes))
    assert float(loss) == pytest.approx(np.mean(columns))


@settings(max_examples=50, deadline=None)
@given(COLUMNS, st.integers(0, 1000))
def test_pairwise_logistic_and_soft_tau_are_means_over_ordered_pairs(
    scores: np.ndarray, seed: int
) -> None:
    runtimes = np.random.default_rng(seed).integers(1, 4, scores.shape).astype(float)
    doubts, agreements = [], []
    for s, r in zip(scores.T, runtimes.T, strict=True):
        pairs = [(i, j) for i, j in itertools.permutations(range(len(s)), 2) if r[i] > r[j]]
        doubts.append(np.mean([np.log1p(np.exp(s[j] - s[i])) for i, j in pairs] or [0.0]))
        agreements.append(np.mean([np.tanh(s[i] - s[j]) for i, j in pairs] or [0.0]))
    tensors = torch.from_numpy(scores), torch.from_numpy(runtimes)
    assert float(pairwise_logistic(*tensors)) == pytest.approx(np.mean(doubts))
    assert float(soft_tau(*tensors)) == pytest.approx(1 - np.mean(agreements))


@settings(max_examples=50, deadline=None)
@given(COLUMNS, st.integers(0, 1000))
def test_list_mle_is_the_likelihood_of_the_order(scores: np.ndarray, seed: int) -> None:
    generator = np.random.default_rng(seed)
    runtimes = np.stack([generator.permutation(len(scores)) for _ in scores.T], axis=1)
    total = 0.0
    for column in range(scores.shape[1]):
        strength = -scores[np.argsort(runtimes[:, column]), column]
        for place in range(len(strength)):
            total += np.log(np.exp(strength[place:]).sum()) - strength[place]
    loss = list_mle(torch.from_numpy(scores), torch.from_numpy(runtimes.astype(float)))
    assert float(loss) == pytest.approx(total / scores.size)


@settings(max_examples=50, deadline=None)
@given(COLUMNS, st.integers(0, 1000))
def test_mean_squared_error_is_the_distance_from_standardised_log_runtimes(
    scores: np.ndarray, seed: int
) -> None:
    runtimes = np.random.default_rng(seed).integers(1, 4, scores.shape).astype(float)
    errors = []
    for s, r in zip(scores.T, runtimes.T, strict=True):
        mean, spread = np.log(r).mean(), np.log(r).std()
        targets = [(np.log(x) - mean) / spread if len(set(r)) > 1 else 0.0 for x in r]
        errors += [(a - b) ** 2 for a, b in zip(s, targets, strict=True)]
    tensors = torch.from_numpy(scores), torch.from_numpy(runtimes)
    assert float(mean_squared_error(*tensors)) == pytest.approx(np.mean(errors))
    slower_machine = mean_squared_error(tensors[0], 1e6 * tensors[1])
    assert float(slower_machine) == pytest.approx(np.mean(errors))


@settings(max_examples=50, deadline=None)
@given(COLUMNS, st.integers(0, 1000))
def test_the_squared_error_of_runtimes_is_of_runtimes_over_their_mean(
    scores: np.ndarray, seed: int
) -> None:
    runtimes = np.random.default_rng(seed).integers(1, 4, scores.shape).astype(float)
    errors = [
        (a - b / r.mean()) ** 2
        for s, r in zip(scores.T, runtimes.T, strict=True)
        for a, b in zip(s, r, strict=True)
    ]
    tensors = torch.from_numpy(scores), torch.from_numpy(runtimes)
    assert float(runtime_squared_error(*tensors)) == pytest.approx(np.mean(errors))
    slower_machine = runtime_squared_error(tensors[0], 1e6 * tensors[1])
    assert float(slower_machine) == pytest.approx(np.mean(errors))


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
def test_an_epoch_visits_configurations_about_once(
    sizes: list[int], configs_per_graph: int, visits: int
) -> None:
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
