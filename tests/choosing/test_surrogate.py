"""The surrogate against plain formulas, and what it does to a prior that is wrong."""

import numpy as np
import pytest
from scipy import stats

from solution.choosing.surrogate import LEVEL, Belief, Forecast, Surrogate

ALONE = Belief(0.0, 0.5, 2.0, 0.1, 1.0)


def make_data(count: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((count, 3))
    scores = generator.standard_normal(count)
    return columns, scores, 7 + columns[:, 0] + 0.3 * scores


def test_it_says_what_the_plain_formulas_say() -> None:
    columns, scores, times = make_data()
    belief = Belief(0.3, 0.5, 2.0, 0.1, 1.0)
    found = Surrogate((belief,), columns[:8], scores[:8], times[:8], unit=4.0).forecast(
        columns[8:], scores[8:]
    )
    distance = np.sqrt(((columns[:, None] - columns[None]) ** 2).sum(-1) / 4.0)
    kernel = LEVEL + np.exp(-distance / 2.0)
    residual = times - 0.3 * scores
    center = residual[:8].mean()
    inverse = np.linalg.inv(kernel[:8, :8] + 0.1 * np.eye(8))
    mean = kernel[8:, :8] @ inverse @ (residual[:8] - center) + center + 0.3 * scores[8:]
    misfit = (residual[:8] - center) @ inverse @ (residual[:8] - center)
    scale = (2 * 0.5**2 + misfit) / (2 + 8)
    variance = (kernel - kernel[:, :8] @ inverse @ kernel[:8])[8:, 8:].diagonal() * scale
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    np.testing.assert_allclose(found.spread, np.sqrt(variance), rtol=1e-3)


def test_members_count_by_what_they_said_beforehand() -> None:
    """The evidence is that of a multivariate Student distribution."""
    columns, scores, times = make_data()
    members = (Belief(0.3, 0.5, 2.0, 0.1, 0.5), Belief(0.0, 0.5, 0.5, 0.1, 0.5))
    found = Surrogate(members, columns, scores, times, unit=4.0).forecast(columns, scores).weights
    distance = np.sqrt(((columns[:, None] - columns[None]) ** 2).sum(-1) / 4.0)
    logs = []
    for own in members:
        kernel = LEVEL + np.exp(-distance / own.length) + 0.1 * np.eye(len(times))
        residual = times - own.slope * scores
        shape = own.deviation**2 * kernel
        density = stats.multivariate_t(np.full(len(times), residual.mean()), shape, df=2)
        logs.append(density.logpdf(residual))
    expected = np.exp(np.array(logs) - max(logs))
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-3)


def test_a_prior_that_is_wrong_is_no_longer_believed() -> None:
    columns, scores, _ = make_data(20)
    members = (Belief(0.3, 0.1, 2.0, 0.1, 0.9), Belief(0.0, 0.3, 2.0, 0.1, 0.1))
    for sign, believed in ((1, True), (-1, False)):
        times = 5 + sign * 0.3 * scores + 0.02 * columns[:, 0]
        weights = Surrogate(members, columns, scores, times, 4.0).forecast(columns, scores).weights
        assert (weights[0] > 0.9) == believed


def test_what_was_measured_is_known_and_what_is_far_is_not() -> None:
    columns, scores, times = make_data()
    far = np.concatenate([columns[:1], np.full((1, 3), 50.0)])
    model = Surrogate((Belief(0, 0.5, 2.0, 1e-4, 1.0),), columns, scores, times, 4.0)
    found = model.forecast(far, np.zeros(2))
    assert found.mean[0] == pytest.approx(times[0], abs=0.02)
    assert found.spread[1] > 10 * found.spread[0]


def test_the_expected_improvement_is_the_mean_over_draws() -> None:
    forecast = Forecast(
        np.array([0.3, 0.7]), np.array([[1.0], [2.0]]), np.array([[0.5], [1.0]]), 9.0
    )
    generator = np.random.default_rng(0)
    member = (generator.random(400_000) < 0.7).astype(int)
    drawn = np.array([1.0, 2.0])[member] + np.array([0.5, 1.0])[member] * generator.standard_t(
        9.0, 400_000
    )
    expected = np.maximum(1.2 - drawn, 0).mean()
    assert forecast.improvement(1.2)[0] == pytest.approx(expected, rel=0.02)
