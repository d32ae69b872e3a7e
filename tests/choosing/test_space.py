"""Spaces of configurations, the surrogate, and the benchmark harness with its A/B results."""

from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.choosing.handing import describe_choice, record_layouts
from solution.choosing.harness import Harness
from solution.choosing.live_prior import LAYOUT, open_prior
from solution.choosing.surrogate import LEVEL, Belief, Forecast, Surrogate
from solution.choosing.verdict import ROUNDS, judge
from solution.collecting.constraints import find_ranks
from solution.collecting.cpu import Workers
from solution.collecting.program_space import (
    KINDS,
    LAYOUTS,
    OPTIONS,
    TILES,
    ProgramSpace,
    make_collected_space,
    make_program_space,
)
from solution.collecting.space import CHANGES, draw_new, link_sites, name_config
from solution.collecting.tiles import FORCE, LIBRARIES_OFF, SIZE
from solution.domain.vocabulary import OPTION_CHOICES
from solution.programs.child import Child, Limits
from solution.programs.compiler import Flags
from solution.programs.program import Program, make_graph
from solution.serving.bundle import load_bundle
from solution.system.errors import InputError
from tests.choosing.made import make_free
from tests.collecting.test_timing import make_product
from tests.made import modules
from tests.made.timed import FEW_MEGABYTES, find_tile


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


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.03, 0.05])
def test_identical_programs_rarely_show_a_gain(noise: float) -> None:
    generator = np.random.default_rng(0)
    claims = [judge(*simulate(1.0, noise, generator)).is_gain for _ in range(RUNS)]
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
def test_a_configuration_is_its_bytes(kind: str) -> None:
    program = make_product() if kind == TILES else Program("p", modules.make_module(), [])
    space = make_collected_space(program, kind)
    for config in [space.default, *draw_new(space, np.random.default_rng(0), 20, set())]:
        assert space.from_bytes(config.tobytes()).tolist() == config.tolist()
    for wrong in (b"", b"x", np.full_like(config, -1).tobytes(), (config + 999).tobytes()):
        with pytest.raises(InputError, match=f"{program.name}: its journal"):
            space.from_bytes(wrong)


def test_children_differ_from_both_parents_at_few_sites() -> None:
    space = make_free(sites=40, choices=9)
    generator = np.random.default_rng(0)
    parents = space.draw(generator, 9)[:2]
    children = space.breed(generator, 50, parents)
    foreign = ((children != parents[0]) & (children != parents[1])).sum(axis=1)
    assert len(children) and foreign.max() <= CHANGES
    assert space.keep_legal(children).tolist() == children.tolist()


def test_a_space_has_a_site_for_every_tensor_and_every_option(dense: Program) -> None:
    space = make_program_space(dense)
    assert space.sites == len(space.layout_sites) + len(OPTION_CHOICES)
    ranks = find_ranks(dense.module, dense.configurable)
    orders = {2: 3, 3: 7}
    assert space.sizes[: len(space.layout_sites)].tolist() == [orders[r] for r in ranks[ranks > 0]]


def test_the_default_configuration_is_the_unchanged_program(dense: Program) -> None:
    space = make_program_space(dense)
    assert space.prepare(space.default) == (dense.plain, Flags())
    assert describe_choice(space, space.default) == "as the compiler has it"
    assert record_layouts(space, space.default) == []


def test_a_tile_excludes_a_library_for_the_product(ragged: Program) -> None:
    space = make_program_space(ragged, (OPTIONS, TILES))
    both = space.default.copy()
    both[0] = both[-1] = 1
    apart = space.default.copy()
    apart[2] = apart[-1] = 1
    assert space.are_legal is not None
    assert space.are_legal(np.stack([both, apart])).tolist() == [False, True]


def test_kinds_that_the_program_does_not_have_are_refused(dense: Program) -> None:
    with pytest.raises(InputError, match="matrix product"):
        make_program_space(dense, (TILES,))
    with pytest.raises(InputError, match="--over is.*expected"):
        make_program_space(dense, ("colours",))


def test_a_tile_with_wrong_numbers_is_never_returned(ragged: Program, workers: Workers) -> None:
    """Four vectors over 70 columns give wrong numbers, and may be the fastest."""
    space = make_program_space(ragged, (TILES,))
    harness = Harness(space, workers)
    wrong, right = (find_tile(space, tile) for tile in ((8, 8, 4), (8, 8, 1)))
    trials = harness.measure(np.stack([wrong, right]))
    assert trials[0].nanoseconds is None and "numbers are" in trials[0].note
    assert trials[1].time > 0
    found = harness.verify(trials, rounds=2)
    assert found is not None and found[0].name == name_config(right)


@dataclass(frozen=True, eq=False)
class Deadly(ProgramSpace):
    """A space whose second tile makes the compiler abort."""

    def flags(self, config: np.ndarray) -> Flags:
        if config[0] == 2:
            return Flags(LIBRARIES_OFF, ((FORCE, "true"), (SIZE, "nonsense")))
        return super().flags(config)


def test_an_aborted_compilation_costs_one_configuration(ragged: Program, workers: Workers) -> None:
    space = make_program_space(ragged, (TILES,))
    deadly = Deadly(**{one.name: getattr(space, one.name) for one in fields(space)})
    trials = Harness(deadly, workers).measure(np.array([[1], [2], [3]], np.int32))
    assert [trial.nanoseconds is None for trial in trials] == [False, True, False]
    assert trials[1].note.startswith("died")


@dataclass(frozen=True, eq=False)
class Hungry(ProgramSpace):
    """A space whose second and fourth tile compile, and take too much memory when timed."""

    heavy: bytes = b""

    def prepare(self, config: np.ndarray) -> tuple[bytes, Flags]:
        return (self.heavy, Flags()) if config[0] in (2, 4) else super().prepare(config)


def test_executables_that_kill_the_timing_child_cost_only_themselves(
    ragged: Program, heavy: Program, workers: Workers
) -> None:
    """Also if several of a batch do, and others are still to be loaded."""
    space = make_program_space(ragged, (TILES,))
    arguments = {one.name: getattr(space, one.name) for one in fields(space)}
    hungry = Hungry(**arguments, heavy=heavy.plain)
    with Child(Limits(240, FEW_MEGABYTES), workers.timing.core) as timing:
        harness = Harness(hungry, Workers(workers.compiling, timing))
        trials = harness.measure(np.array([[1], [2], [4], [3]], np.int32))
    assert [trial.nanoseconds is None for trial in trials] == [False, True, True, False]
    for trial in trials[1:3]:
        expected = f"died while it was timed: it took more than {FEW_MEGABYTES} MB of memory"
        assert trial.note == expected


def test_layouts_and_options_are_timed_with_the_default(dense: Program, workers: Workers) -> None:
    space = make_program_space(dense, (LAYOUTS, OPTIONS))
    harness = Harness(space, workers)
    drawn = space.draw(np.random.default_rng(0), 2)
    trials = harness.measure(np.concatenate([space.default[None], drawn]))
    assert trials[0].time / harness.reference == pytest.approx(1, rel=0.5)  # it is the default
    assert all(trial.nanoseconds for trial in trials)
    assert harness.optimised(drawn[0])


def test_the_prior_has_the_scores_of_the_bundles_session(dense: Program) -> None:
    bundle = load_bundle()
    space = make_program_space(dense)
    prior = open_prior(bundle, space)
    drawn = space.draw(np.random.default_rng(0), 5)
    assert prior.score is not None
    session = bundle.session(make_graph(dense, LAYOUT))
    expected = session.score(space.layouts(drawn).reshape(5, -1, 18))
    np.testing.assert_allclose(prior.score(drawn), expected, rtol=1e-6)
    options = make_program_space(dense, (OPTIONS,))
    assert open_prior(bundle, options).score is None
