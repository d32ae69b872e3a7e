"""Ranking losses against slow loops, and what minimising them must mean."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from solution.models.nets.losses import (
    LOSSES,
    blend,
    list_mle,
    mean_squared_error,
    pairwise_hinge,
    pairwise_logistic,
    runtime_squared_error,
    soft_tau,
)

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


@pytest.mark.parametrize("name", LOSSES)
def test_descending_the_loss_finds_the_order(name: str) -> None:
    runtimes = torch.tensor([[3.0], [1.0], [2.0], [5.0]])
    scores = torch.zeros(4, 1, requires_grad=True)
    for _ in range(100):
        (gradient,) = torch.autograd.grad(LOSSES[name](scores, runtimes), scores)
        scores = (scores - 0.5 * gradient).detach().requires_grad_()
    assert torch.argsort(scores[:, 0]).tolist() == torch.argsort(runtimes[:, 0]).tolist()


@pytest.mark.parametrize("name", LOSSES)
def test_the_right_order_costs_less_than_the_wrong_one(name: str) -> None:
    runtimes = torch.tensor([[1.0], [2.0], [3.0]])
    right, wrong = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[2.0], [1.0], [0.0]])
    assert LOSSES[name](right, runtimes) < LOSSES[name](wrong, runtimes)
