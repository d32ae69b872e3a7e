"""Ordered pair accuracy, top-k slowdown and the list's likelihood against slow loops and torch."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from solution.domain.metrics import (
    concordance,
    kendall_tau,
    list_mle,
    ordered_pair_accuracy,
    top_k_score,
    top_k_slowdown,
)
from solution.models.nets import losses

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=25)


def unzip(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    scores, runtimes = zip(*pairs, strict=True)
    return np.array(scores, np.float32), np.array(runtimes, float)


@given(PAIRS, st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=100, deadline=None)
def test_ordered_pair_accuracy_is_the_mean_over_pairs(
    pairs: list[tuple[int, int]], tie: float
) -> None:
    scores, runtimes = unzip(pairs)
    right = [
        1.0 if scores[i] < scores[j] else tie if scores[i] == scores[j] else 0.0
        for i, j in itertools.permutations(range(len(scores)), 2)
        if runtimes[i] < runtimes[j]
    ]
    found = ordered_pair_accuracy(scores, runtimes, tie=tie)
    assert math.isnan(found) if not right else found == pytest.approx(np.mean(right))
    known = ordered_pair_accuracy(scores, runtimes, tie=tie, tau=kendall_tau(scores, runtimes))
    assert np.array_equal(found, known, equal_nan=True)


@given(PAIRS)
@settings(max_examples=100, deadline=None)
def test_concordance_is_of_the_pairs_that_differ_in_both(pairs: list[tuple[int, int]]) -> None:
    scores, runtimes = unzip(pairs)
    signs = [
        np.sign(float(scores[i] - scores[j]) * (runtimes[i] - runtimes[j]))
        for i, j in itertools.combinations(range(len(scores)), 2)
    ]
    concordant, discordant = signs.count(1), signs.count(-1)
    expected = (concordant - discordant) / max(1, concordant + discordant)
    assert concordance(scores, runtimes) == pytest.approx(expected)


def test_ties_as_two_reports_count_them() -> None:
    """Scores 1, 1, 2, 3 of runtimes 1 to 4: five pairs of six are told apart, all rightly."""
    scores, runtimes = np.array([1.0, 1, 2, 3]), np.arange(1.0, 5)
    assert concordance(scores, runtimes) == pytest.approx(1)
    assert ordered_pair_accuracy(scores, runtimes, tie=0.0) == pytest.approx(5 / 6)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_without_ties_it_is_tau_and_the_area_under_a_curve(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores, runtimes = generator.permutation(12), generator.permutation(12) + 1.0
    tau = stats.kendalltau(scores, runtimes).statistic
    assert ordered_pair_accuracy(scores, runtimes) == pytest.approx((1 + tau) / 2)
    slow = runtimes > 6  # two levels: Mann and Whitney's U over the pairs
    count = stats.mannwhitneyu(scores[slow], scores[~slow]).statistic
    found = ordered_pair_accuracy(scores, slow + 1.0)
    assert found == pytest.approx(count / (slow.sum() * (~slow).sum()))


def test_no_ranking_is_right_in_half_of_the_pairs() -> None:
    assert ordered_pair_accuracy(np.zeros(4), np.array([1.0, 2, 2, 3])) == 0.5
    assert math.isnan(ordered_pair_accuracy(np.arange(3), np.ones(3)))


@given(PAIRS, st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_slowdown_is_what_is_lost_of_the_score(pairs: list[tuple[int, int]], k: int) -> None:
    scores, runtimes = unzip(pairs)
    found = top_k_slowdown(scores, runtimes, k)
    assert found == pytest.approx(1 - top_k_score(scores, runtimes, k))
    assert found >= 0
    tried = sorted(range(len(scores)), key=lambda config: (scores[config], config))[:k]
    assert found == pytest.approx(min(runtimes[tried]) / min(runtimes) - 1)
    assert top_k_slowdown(scores, runtimes, len(scores)) == 0


@given(PAIRS)
@settings(max_examples=50, deadline=None)
def test_the_likelihood_is_that_of_the_loss_and_of_a_loop(pairs: list[tuple[int, int]]) -> None:
    scores, runtimes = unzip(pairs)
    columns = [torch.from_numpy(values.astype(np.float64))[:, None] for values in unzip(pairs)]
    found = list_mle(scores, runtimes)
    assert found == pytest.approx(float(losses.list_mle(*columns)))
    order = sorted(range(len(scores)), key=lambda config: runtimes[config])
    scores = scores.astype(float)
    slow = sum(
        math.log(sum(math.exp(-scores[other]) for other in order[place:])) + scores[config]
        for place, config in enumerate(order)
    )
    assert found == pytest.approx(slow / len(order))


def test_the_likelihood_of_no_ranking_is_that_of_a_random_order() -> None:
    assert list_mle(np.zeros(5), np.arange(5.0)) == pytest.approx(math.log(math.factorial(5)) / 5)
    assert math.isfinite(list_mle(np.array([1e6, -1e6, 0]), np.array([1.0, 2, 3])))
