"""The benchmark harness, with real programs and a real compiler."""

from dataclasses import dataclass, fields

import numpy as np
import pytest

pytest.importorskip("jax")  # the extra `collect`; make test installs it

from solution.choosing.handing import describe_choice, record_layouts
from solution.choosing.harness import Harness
from solution.choosing.live_prior import LAYOUT, open_prior
from solution.collecting.constraints import find_ranks
from solution.collecting.cpu import Workers
from solution.collecting.program_space import (
    LAYOUTS,
    OPTIONS,
    TILES,
    ProgramSpace,
    make_program_space,
)
from solution.collecting.space import name_config
from solution.collecting.tiles import FORCE, LIBRARIES_OFF, SIZE
from solution.domain.vocabulary import OPTION_CHOICES
from solution.programs.child import Child, Limits
from solution.programs.compiler import Flags
from solution.programs.program import Program, make_graph
from solution.serving.bundle import load_bundle
from solution.system.errors import InputError
from tests.made.timed import FEW_MEGABYTES


def find_tile(space: ProgramSpace, *sizes: int) -> np.ndarray:
    """Return the configuration of a tile's sizes."""
    return space.from_array(np.array(sizes))


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
    wrong, right = find_tile(space, 8, 8, 4), find_tile(space, 8, 8, 1)
    trials = harness.measure(np.stack([wrong, right]))
    assert trials[0].nanoseconds is None and "numbers are" in trials[0].note
    assert trials[1].time > 0
    found = harness.verify(trials, rounds=2)
    assert found is not None
    assert found[0].name == name_config(right)


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


def test_layouts_and_options_are_timed_in_turns_with_the_default(
    dense: Program, workers: Workers
) -> None:
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
