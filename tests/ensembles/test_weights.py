"""Fitted weights against brute force, and on members of known worth."""

import dataclasses
from itertools import product

import numpy as np
import pytest

from ensembles.ballots import Ballot, mean_score
from ensembles.weights import (
    FITS,
    Fit,
    fit_best,
    fit_equal,
    fit_greedy,
    fit_least_squares,
    fit_optuna,
    shrink,
)
from tests.made.ballots import draw_ballots

NOISES = [0.4, 0.8, 3.0]


@pytest.fixture(scope="module")
def ballots() -> list[Ballot]:
    return draw_ballots(NOISES, graphs=10, methods=("mean_rank",))


@pytest.mark.parametrize("name", [*FITS])
def test_weights_are_shares_and_the_same_every_time(ballots: list[Ballot], name: str) -> None:
    weights = FITS[name](ballots, "mean_rank")
    assert weights.shape == (3,)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights, FITS[name](ballots, "mean_rank"))


def slow_greedy(ballots: list[Ballot], steps: int) -> np.ndarray:
    """Every way to draw a member at each step, kept to those that are best step by step."""
    drawn: list[int] = []
    reached = []
    for _ in range(steps):
        scored = []
        for member in range(3):
            counts = np.bincount([*drawn, member], minlength=3).astype(float)
            scored.append((mean_score(ballots, counts, "mean_rank"), -member))
        score, negative = max(scored)
        drawn.append(-negative)
        reached.append(score)
    best = int(np.argmax(reached)) + 1
    return np.bincount(drawn[:best], minlength=3) / best


@pytest.mark.parametrize("seed", range(3))
def test_greedy_selection_is_that_of_brute_force(seed: int) -> None:
    own = draw_ballots(NOISES, graphs=6, methods=("mean_rank",), seed=seed)
    np.testing.assert_allclose(fit_greedy(own, "mean_rank", 6), slow_greedy(own, 6))


def test_greedy_selection_is_no_worse_than_the_best_member_and_near_the_best_of_all(
    ballots: list[Ballot],
) -> None:
    found = mean_score(ballots, fit_greedy(ballots, "mean_rank"), "mean_rank")
    assert found >= mean_score(ballots, fit_best(ballots, "mean_rank"), "mean_rank")
    grid = [np.array(w, float) for w in product(range(6), repeat=3) if any(w)]
    assert found > max(mean_score(ballots, w, "mean_rank") for w in grid) - 0.01


def test_least_squares_recovers_known_weights(ballots: list[Ballot]) -> None:
    known = np.array([0.5, 0.3, 0.2])
    mixed = [
        dataclasses.replace(b, targets={"mean_rank": known @ b.votes["mean_rank"]}) for b in ballots
    ]
    np.testing.assert_allclose(fit_least_squares(mixed, "mean_rank"), known, atol=1e-5)


def test_least_squares_falls_back_on_equal_weights_where_nobody_helps(
    ballots: list[Ballot],
) -> None:
    against = [
        dataclasses.replace(b, targets={"mean_rank": -b.votes["mean_rank"].sum(axis=0)})
        for b in ballots
    ]
    np.testing.assert_allclose(fit_least_squares(against, "mean_rank"), [1 / 3] * 3)


@pytest.mark.parametrize("fit", [fit_greedy, fit_least_squares, fit_optuna, fit_best])
def test_the_noisiest_member_counts_least(ballots: list[Ballot], fit: Fit) -> None:
    weights = fit(ballots, "mean_rank")
    assert weights[2] <= min(weights[0], 1 / 3)


def test_optuna_is_no_worse_than_equal_weights(ballots: list[Ballot]) -> None:
    found = mean_score(ballots, fit_optuna(ballots, "mean_rank", trials=15), "mean_rank")
    assert found >= mean_score(ballots, fit_equal(ballots, "mean_rank"), "mean_rank")


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_shrinking_goes_straight_to_equal_weights(ballots: list[Ballot], share: float) -> None:
    fitted = fit_best(ballots, "mean_rank")
    expected = (1 - share) * fitted + share / 3
    np.testing.assert_allclose(shrink(fit_best, share)(ballots, "mean_rank"), expected)


def test_a_score_that_was_asked_before_is_the_same(ballots: list[Ballot]) -> None:
    fresh = dataclasses.replace(ballots[0], _scores={})
    for weights in ([1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]):
        asked = np.array(weights)
        assert ballots[0].score(asked, "mean_rank") == fresh.score(asked, "mean_rank")
