"""Halves, repeat tau, flat graphs, and when it is enough."""

import numpy as np
import polars as pl
import pytest

from solution.collecting.child import find_plausible
from solution.collecting.timing import SCHEMA, choose_runs, is_settled, summarise


def make_repeats(times: np.ndarray) -> pl.DataFrame:
    """From times (passes, configs, runs)."""
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


def test_a_label_is_the_smallest_time_that_both_halves_have_seen() -> None:
    """A clock that once says too little, here 4 and 60, does not make the fastest of all."""
    times = np.array([[[5, 9], [70, 80]], [[6, 4], [90, 60]], [[3, 8], [75, 99]]])
    outcome = summarise(make_repeats(times), "cpu")
    assert outcome.configs == ["c0", "c1"]
    assert outcome.halves.tolist() == [[3, 70], [4, 60]]
    assert outcome.nanoseconds.tolist() == [4, 70]
    assert outcome.spread == 17.5
    assert summarise(make_repeats(times), "wall").nanoseconds.tolist() == [40, 700]


def test_what_was_timed_in_one_half_alone_has_no_label() -> None:
    repeats = make_repeats(np.ones((4, 3, 1)))
    only = repeats.filter((pl.col("config") != "c1") | (pl.col("half") == 0))
    assert summarise(only, "cpu").configs == ["c0", "c2"]
    assert summarise(SCHEMA.to_frame(), "cpu").configs == []


def test_repeat_tau_is_near_one_for_programs_apart_and_near_nothing_for_equal_ones() -> None:
    generator = np.random.default_rng(0)
    noise = generator.exponential(1000, (20, 40, 3))
    apart = summarise(make_repeats(100_000 + 5000 * np.arange(40)[:, None] + noise), "cpu")
    equal = summarise(make_repeats(100_000 + noise), "cpu")
    assert apart.tau > 0.97
    assert not apart.is_flat
    assert equal.tau < 0.35
    assert equal.is_flat


def test_passes_go_on_until_the_order_no_longer_changes() -> None:
    generator = np.random.default_rng(1)
    times = 100_000 + 300 * np.arange(30)[:, None] + generator.exponential(4000, (400, 30, 2))
    settled = [is_settled(make_repeats(times[:count]), "cpu") for count in (2, 8, 400)]
    assert settled[:2] == [False, False]
    assert settled[2]


@pytest.mark.parametrize(
    ("nanoseconds", "runs"), [(50_000, 20), (1_000_000, 4), (10**9, 2), (0, 20)]
)
def test_short_programs_run_more_often(nanoseconds: int, runs: int) -> None:
    assert choose_runs(nanoseconds) == runs


@pytest.mark.parametrize(
    ("cpu", "kept"),
    [
        ([900, 1000, 0, 1100], [900, 1000, 1100]),  # a clock that left a whole run out
        ([900, 1000, 40, 9000], [900, 1000, 9000]),  # and one that left out most of one
        ([300, 1000, 1000], [300, 1000, 1000]),  # slow at first, or disturbed: all are runs
        ([0, 0, 500], [500]),
    ],
)
def test_a_run_that_took_next_to_nothing_was_misread(cpu: list[int], kept: list[int]) -> None:
    times = np.array(cpu)
    assert times[find_plausible(times)].tolist() == kept
