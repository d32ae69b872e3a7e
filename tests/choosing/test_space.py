"""Spaces of configurations, the surrogate, and A/B results."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.choosing.surrogate import LEVEL, Belief, Forecast, Surrogate
from solution.choosing.verdict import ROUNDS, judge
from solution.collecting.journal import SOUND, Journal
from solution.collecting.program_space import KINDS, TILES, make_collected_space
from solution.collecting.space import CHANGES, draw_new, link_sites, name_config
from solution.collecting.timing import SCHEMA
from solution.programs.program import Program
from solution.system.errors import InputError
from tests.choosing.made import make_free
from tests.collecting.test_timing import make_product
from tests.made import modules


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_drawn_configurations_are_legal(seed: int) -> None:
    space = make_free()
    drawn = space.draw(np.random.default_rng(seed), 30)
    assert ((drawn >= 0) & (drawn < space.sizes)).all()
    assert not ((drawn[:, 0] > 0) & (drawn[:, 1] > 0)).any()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_a_neighbour_differs_at_one_or_two_sites(seed: int) -> None:
    generator = np.random.default_rng(seed)
    space = make_free()
    start = space.draw(generator, 20)
    near = space.mutate(generator, start)
    changed = (near != start).sum(axis=1)
    assert set(changed) <= {1, 2}
    assert ((near >= 0) & (near < space.sizes)).all()


def test_sites_are_linked_where_no_configurable_node_is_between() -> None:
    # 0 -> 1 -> 2 -> 3 -> 4; nodes 0, 2 and 4 are configurable, and 2 has two sites
    edges = np.array([(1, 0), (2, 1), (3, 2), (4, 3)])
    links = link_sites(edges, 5, np.array([0, 2, 4]), np.array([0, 1, 1, 2]))
    assert {tuple(sorted(pair)) for pair in links.tolist()} == {(1, 2), (0, 1), (1, 3)}


def make_data(count: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((count, 3))
    scores = generator.standard_normal(count)
    return columns, scores, 7 + columns[:, 0] + 0.3 * scores


def test_the_surrogate_agrees_with_the_textbook_formulas() -> None:
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
    np.testing.assert_allclose(found.deviations[0], np.sqrt(variance), rtol=1e-3)


def test_a_wrong_prior_loses_its_weight() -> None:
    columns, scores, _ = make_data(20)
    members = (Belief(0.3, 0.1, 2.0, 0.1, 0.9), Belief(0.0, 0.3, 2.0, 0.1, 0.1))
    for sign, believed in ((1, True), (-1, False)):
        times = 5 + sign * 0.3 * scores + 0.02 * columns[:, 0]
        weights = Surrogate(members, columns, scores, times, 4.0).forecast(columns, scores).weights
        assert (weights[0] > 0.9) == believed


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


RUNS = 800


def simulate(gain: float, noise: float, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return times of both (rounds,): they share the machine's drift, not a process's noise."""
    drift = np.exp(0.1 * generator.standard_normal(ROUNDS))
    default = drift * np.exp(noise * generator.standard_normal(ROUNDS))
    other = drift / gain * np.exp(noise * generator.standard_normal(ROUNDS))
    return 1000 * default, 1000 * other


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.05])
def test_identical_programs_rarely_show_a_gain(noise: float) -> None:
    generator = np.random.default_rng(0)
    claims = [judge(*simulate(1.0, noise, generator)).is_gain for _ in range(RUNS)]
    assert np.mean(claims) <= 0.05


def test_a_lucky_time_is_not_taken_for_a_gain() -> None:
    """Of 24 identical configurations, the one with the luckiest time is judged again."""
    generator = np.random.default_rng(0)
    claims, lucky = [], []
    for _ in range(RUNS):
        times = 1000 * np.exp(0.03 * generator.standard_normal(24))
        lucky.append(1000 / times.min())
        claims.append(judge(*simulate(1.0, 0.03, generator)).is_gain)
    assert np.mean(lucky) > 1.05  # a search without new runs would have reported this
    assert np.mean(claims) <= 0.05


def test_a_gain_is_detected() -> None:
    generator = np.random.default_rng(0)
    claims = [judge(*simulate(1.1, 0.02, generator)).is_gain for _ in range(200)]
    assert np.mean(claims) > 0.95


def test_the_interval_covers_the_gain_at_its_confidence_level() -> None:
    generator = np.random.default_rng(0)
    found = [judge(*simulate(1.05, 0.03, generator)) for _ in range(RUNS)]
    covered = np.mean([one.low <= 1.05 <= one.high for one in found])
    assert 0.92 <= covered <= 0.98


def test_a_useless_gain_is_no_gain() -> None:
    default = np.full(6, 1000.0) * (1 + 1e-5 * np.arange(6))
    verdict = judge(default, default / 1.002)
    assert verdict.low > 1 and not verdict.is_gain


def test_one_round_is_refused() -> None:
    with pytest.raises(ValueError, match="expected.*2"):
        judge(np.ones(1), np.ones(1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_is_its_array_and_its_bytes(kind: str) -> None:
    """Journals store layouts, options, or a tile's sizes."""
    program = make_product() if kind == TILES else Program("p", modules.make_module(), [])
    space = make_collected_space(program, kind)
    for config in [space.default, *draw_new(space, np.random.default_rng(0), 20, set())]:
        array = space.to_array(config)
        assert space.from_array(array).tolist() == config.tolist()
        assert space.from_bytes(array.tobytes()).tolist() == config.tolist()
    for wrong in (b"", b"x", np.full_like(array, 99).tobytes()):
        with pytest.raises(InputError, match=f"{program.name}: its journal"):
            space.from_bytes(wrong)


def test_configurations_of_an_older_journal_are_renamed(tmp_path: Path) -> None:
    """Names were hashes of the arrays; times stay with their configurations."""
    space = make_collected_space(make_product(), TILES)
    configs = draw_new(space, np.random.default_rng(0), 3, set())
    journal = Journal(tmp_path / "log", {})
    for number, config in enumerate(configs):
        journal.add_candidate(f"old {number}", space.to_array(config), SOUND, "", 0.1)
    rows = [("reference", 0, 0, 7, 7), *((f"old {n}", 0, 0, n, n) for n in range(3))]
    journal.add_repeats([pl.DataFrame(rows, SCHEMA, orient="row")])
    names = [name_config(config) for config in configs]
    for opened in (Journal(tmp_path / "log", {}), journal):
        opened.rename(lambda data: name_config(space.from_bytes(data)))
        assert opened.candidates["config"].to_list() == names
        assert opened.repeats.select("config", "cpu_ns").rows() == [
            ("reference", 7), *((name, n) for n, name in enumerate(names)),
        ]  # fmt: skip
    opened.rename(lambda data: name_config(space.from_bytes(data)))
    assert opened.candidates["config"].to_list() == names


def test_children_differ_from_both_parents_at_few_sites() -> None:
    space = make_free(sites=40, choices=9)
    generator = np.random.default_rng(0)
    parents = space.draw(generator, 9)[:2]
    children = space.breed(generator, 50, parents)
    foreign = ((children != parents[0]) & (children != parents[1])).sum(axis=1)
    assert len(children) and foreign.max() <= CHANGES
    assert space.keep_legal(children).tolist() == children.tolist()
