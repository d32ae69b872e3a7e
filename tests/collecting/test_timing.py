"""Labels from repeated times, and comparisons of results."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.collecting.child import find_plausible
from solution.collecting.comparison import find_deviation
from solution.collecting.program_space import TILES, make_collected_space
from solution.collecting.space import draw_new, name_config
from solution.collecting.timing import SCHEMA, choose_runs, is_settled, summarise
from solution.programs.program import Program
from tests.made import modules


def make_repeats(times: np.ndarray) -> pl.DataFrame:
    """Return the repeats of times (passes, configs, runs)."""
    passes, configs, runs = times.shape
    turn, config, _ = np.indices(times.shape).reshape(3, -1)
    return pl.DataFrame(
        {
            "config": [f"c{c}" for c in config],
            "half": turn % 2,
            "turn": turn,
            "cpu_ns": times.ravel().astype(np.int64),
            "wall_ns": 10 * times.ravel().astype(np.int64),
        }
    ).cast(dict(SCHEMA))


def test_a_label_is_the_larger_of_both_halves_smallest_times() -> None:
    """A clock error in one half, here 4 and 60, does not become the label."""
    times = np.array([[[5, 9], [70, 80]], [[6, 4], [90, 60]], [[3, 8], [75, 99]]])
    outcome = summarise(make_repeats(times), "cpu")
    assert outcome.configs == ["c0", "c1"]
    assert outcome.halves.tolist() == [[3, 70], [4, 60]]
    assert outcome.nanoseconds.tolist() == [4, 70] and outcome.spread == 17.5
    assert summarise(make_repeats(times), "wall").nanoseconds.tolist() == [40, 700]


def test_a_configuration_timed_in_one_half_has_no_label() -> None:
    repeats = make_repeats(np.ones((4, 3, 1)))
    only = repeats.filter((pl.col("config") != "c1") | (pl.col("half") == 0))
    assert summarise(only, "cpu").configs == ["c0", "c2"]
    none = summarise(SCHEMA.to_frame(), "cpu")
    assert none.configs == [] and none.spread == 1 and none.is_flat


def test_repeat_tau_is_near_1_for_different_runtimes_and_near_0_for_equal_ones() -> None:
    generator = np.random.default_rng(0)
    noise = generator.exponential(1000, (20, 40, 3))
    apart = summarise(make_repeats(100_000 + 5000 * np.arange(40)[:, None] + noise), "cpu")
    equal = summarise(make_repeats(100_000 + noise), "cpu")
    assert apart.tau > 0.97 and not apart.is_flat
    assert equal.tau < 0.35 and equal.is_flat


def test_passes_go_on_until_the_order_no_longer_changes() -> None:
    generator = np.random.default_rng(1)
    times = 100_000 + 300 * np.arange(30)[:, None] + generator.exponential(4000, (400, 30, 2))
    settled = [is_settled(make_repeats(times[:count]), "cpu") for count in (2, 8, 400)]
    assert settled[:2] == [False, False] and settled[2]


@pytest.mark.parametrize(
    ("nanoseconds", "runs"), [(50_000, 20), (1_000_000, 4), (10**9, 2), (0, 20)]
)
def test_short_programs_run_more_often(nanoseconds: int, runs: int) -> None:
    assert choose_runs(nanoseconds) == runs


@pytest.mark.parametrize(
    ("cpu", "kept"),
    [
        ([900, 1000, 0, 1100], [900, 1000, 1100]),  # the clock missed a whole run
        ([900, 1000, 40, 9000], [900, 1000, 9000]),  # the clock missed most of a run
        ([300, 1000, 1000], [300, 1000, 1000]),  # disturbed runs are kept
        ([0, 0, 500], [500]),
    ],
)
def test_implausibly_short_runs_are_dropped(cpu: list[int], kept: list[int]) -> None:
    times = np.array(cpu)
    assert times[find_plausible(times)].tolist() == kept


RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.standard_normal((40, 30)).astype(np.float32)


def test_another_order_of_sums_is_no_deviation() -> None:
    left, right = RANDOM.standard_normal((2, 300, 300)).astype(np.float32)
    assert find_deviation([left[:, ::-1] @ right[::-1]], [left @ right]) == ""


@given(st.integers(0, NUMBERS.size - 1), st.sampled_from([0.0, 1.0, np.nan, np.inf]))
@settings(deadline=None)
def test_one_wrong_number_is_found(index: int, value: float) -> None:
    wrong = NUMBERS.copy()
    wrong.ravel()[index] = value + 3
    assert "1 of 1,200 numbers are wrong" in find_deviation([wrong], [NUMBERS])


def test_nan_and_infinity_must_be_in_both() -> None:
    with_gaps = NUMBERS.copy()
    with_gaps[3, 4], with_gaps[5, 6] = np.nan, np.inf
    assert find_deviation([with_gaps], [with_gaps]) == ""
    assert "1 of" in find_deviation([np.where(np.isnan(with_gaps), 0, with_gaps)], [with_gaps])


def test_shapes_types_and_counts_must_agree() -> None:
    assert "expected 2" in find_deviation([NUMBERS], [NUMBERS, NUMBERS])
    assert "float64" in find_deviation([NUMBERS.astype(np.float64)], [NUMBERS])
    assert "(30, 40)" in find_deviation([NUMBERS.T], [NUMBERS])


def make_product() -> Program:
    """Return a product of 6 rows, 9 sums and 32 columns, which has a hundred tiles."""
    nodes = [
        modules.node(10, "parameter", modules.shape(6, 9)),
        modules.node(11, "parameter", modules.shape(9, 32), parameter_number=1),
        modules.node(
            12, "dot", modules.shape(6, 32), (10, 11), dot=modules.dot([1], [0], [], [])
        ),
    ]  # fmt: skip
    return Program("product", modules.module(("main", 12, nodes)), [])


def test_every_tile_of_a_small_grid_is_drawn() -> None:
    """Drawn one by one, as by a collection; the order depends on the seed."""
    space = make_collected_space(make_product(), TILES)
    orders = []
    for seed in range(5):
        generator, drawn = np.random.default_rng(seed), list[str]()
        while len(found := draw_new(space, generator, 1, set(drawn))):
            drawn += [name_config(config) for config in found]
        assert len(drawn) == len(set(drawn)) == len(space.names)
        orders.append(drawn)
    assert orders[0] != orders[1]
