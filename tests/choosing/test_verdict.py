"""The decision on simulated timings: how often a gain is claimed where there is none."""

import numpy as np
import pytest

from solution.choosing.verdict import ROUNDS, judge

RUNS = 800


def simulate(gain: float, noise: float, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Times of both (rounds,): the machine's drift is shared, the noise of a process is not."""
    drift = np.exp(0.1 * generator.standard_normal(ROUNDS))
    own = drift * np.exp(noise * generator.standard_normal(ROUNDS))
    other = drift / gain * np.exp(noise * generator.standard_normal(ROUNDS))
    return 1000 * own, 1000 * other


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.05])
def test_where_programs_are_identical_few_runs_claim_a_gain(noise: float) -> None:
    generator = np.random.default_rng(0)
    claims = [judge(*simulate(1.0, noise, generator)).is_gain for _ in range(RUNS)]
    assert np.mean(claims) <= 0.05


def test_the_luck_of_the_fastest_of_many_is_not_taken_for_a_gain() -> None:
    """24 identical configurations, of which the one with the luckiest time is judged again."""
    generator = np.random.default_rng(0)
    claims, lucky = [], []
    for _ in range(RUNS):
        times = 1000 * np.exp(0.03 * generator.standard_normal(24))
        lucky.append(1000 / times.min())
        claims.append(judge(*simulate(1.0, 0.03, generator)).is_gain)
    assert np.mean(lucky) > 1.05  # what a search without fresh runs would have said
    assert np.mean(claims) <= 0.05


def test_a_gain_is_told() -> None:
    generator = np.random.default_rng(0)
    claims = [judge(*simulate(1.1, 0.02, generator)).is_gain for _ in range(200)]
    assert np.mean(claims) > 0.95


def test_the_interval_covers_the_gain_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    found = [judge(*simulate(1.05, 0.03, generator)) for _ in range(RUNS)]
    covered = np.mean([one.low <= 1.05 <= one.high for one in found])
    assert 0.92 <= covered <= 0.98


def test_a_gain_that_is_no_use_is_none() -> None:
    default = np.full(6, 1000.0) * (1 + 1e-5 * np.arange(6))
    verdict = judge(default, default / 1.002)
    assert verdict.low > 1 and not verdict.is_gain
    assert verdict.sentence().startswith("No gain that can be told")


def test_one_round_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        judge(np.ones(1), np.ones(1))
