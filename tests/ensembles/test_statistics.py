"""Paired statistics against textbook tests, slow formulas and worlds whose truth is known."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.intervals import (
    World,
    draw_normal,
    draw_skewed,
    measure_coverage,
    measure_false_verdicts,
)
from ensembles.statistics import (
    compare,
    is_better,
    mean_of_all,
    mean_over_collections,
    mean_scores,
    read_scores,
)
from solution.domain.collection import NAMES
from solution.system.errors import InputError
from tests.made.ballots import make_score_table as make_table

DEFAULT, RANDOM, TILE = "layout:xla:default", "layout:xla:random", "tile:xla"


def draw_scores(seed: int, graphs: int) -> list[float]:
    return np.random.default_rng(seed).normal(0.5, 0.2, graphs).tolist()


@pytest.mark.parametrize("of_a_group", [1, 3])
def test_with_groups_of_one_size_it_is_the_paired_t_test_of_their_means(of_a_group: int) -> None:
    better, worse = draw_scores(1, 12 * of_a_group), draw_scores(2, 12 * of_a_group)
    table = make_table({(TILE, "one"): better, (TILE, "two"): worse}, of_a_group)
    line = compare(table, "one", "two").row(0, named=True)
    gaps = np.subtract(better, worse).reshape(12, of_a_group).mean(axis=1)
    expected = stats.ttest_1samp(gaps, 0)
    low, high = expected.confidence_interval(0.95)
    assert (line["low"], line["high"]) == pytest.approx((low, high))
    below = line["probability"] if line["difference"] < 0 else 1 - line["probability"]
    assert 2 * below == pytest.approx(expected.pvalue)
    first = mean_scores(table).filter(member="one").row(0, named=True)
    of_groups = np.reshape(better, (12, of_a_group)).mean(axis=1)
    assert first["standard_error"] == pytest.approx(stats.sem(of_groups))


@pytest.mark.parametrize("groups", [5, 11, 40])
@pytest.mark.parametrize(("world", "fewest"), [(draw_normal, 0.94), (draw_skewed, 0.925)])
def test_the_interval_holds_as_often_as_it_says(world: World, fewest: float, groups: int) -> None:
    assert fewest <= measure_coverage(world, groups, 3000) <= 0.98


@pytest.mark.parametrize("groups", [8, 40])
@pytest.mark.parametrize("world", [draw_normal, draw_skewed])
def test_of_equal_rankers_one_is_called_better_once_in_twenty(world: World, groups: int) -> None:
    assert measure_false_verdicts(world, groups, 4000) <= 0.055  # two deviations above


def draw_world(generator: np.random.Generator, programs: int, sizes: int) -> pl.DataFrame:
    """Scores around 0, nearly the same for a program's sizes in both searches of its source."""
    rows = []
    for source, searches in (("xla", (DEFAULT, RANDOM)), ("nlp", NAMES[2:4]), ("tile", (TILE,))):
        shared = generator.normal(size=programs)
        for name in searches:
            values = 0.9 * shared[:, None] + 0.4 * generator.normal(size=(programs, sizes))
            rows += [
                (name, f"{source} {p} {size}", f"{source}/{p}", value)
                for (p, size), value in np.ndenumerate(values)
            ]
    return pl.DataFrame(rows, schema=["collection", "graph", "group", "score"], orient="row")


def test_the_interval_of_a_mean_over_collections_holds_the_truth_as_often() -> None:
    """Where each collection were taken for itself it would be in 85 of 100 worlds."""
    generator = np.random.default_rng(0)
    means = [mean_over_collections(draw_world(generator, 8, 3)) for _ in range(300)]
    assert 0.91 <= np.mean([mean.low <= 0 <= mean.high for mean in means]) <= 0.98


@given(st.integers(0, 200), st.integers(5, 30), st.floats(0, 0.5))
@settings(max_examples=60, deadline=None)
def test_interval_probability_and_verdict_say_the_same(seed: int, graphs: int, gain: float) -> None:
    better = (np.array(draw_scores(seed, graphs)) + gain).tolist()
    table = make_table({(TILE, "one"): better, (TILE, "two"): draw_scores(seed + 1000, graphs)})
    for line in compare(table, "one", "two").rows(named=True):
        verdict = is_better(line)
        assert (verdict is True) == (line["low"] > 0) == (line["probability"] > 0.975)
        assert (verdict is False) == (line["high"] < 0) == (line["probability"] < 0.025)


def test_below_five_groups_nothing_is_said() -> None:
    four, five = (
        make_table({(TILE, name): draw_scores(k, size) for k, name in enumerate(["one", "two"])})
        for size in (4, 5)
    )
    assert mean_scores(four)["low"].to_list() == [None, None]
    found = compare(four, "one", "two")
    for column in ("low", "high", "standard_error", "probability"):
        assert found[column].to_list() == [None, None]
    assert is_better(found.row(0, named=True)) is None
    assert mean_scores(five)["low"].null_count() == 0
    assert compare(five, "one", "two")["probability"].null_count() == 0
    of_one_program = make_table({(TILE, "one"): draw_scores(0, 40)}, of_a_group=10)
    assert mean_scores(of_one_program)["low"].to_list() == [None]


@pytest.mark.parametrize(("size", "is_sure"), [(10, True), (11, False)])
def test_no_interval_if_a_group_has_more_than_half_of_graphs(size: int, *, is_sure: bool) -> None:
    table = make_table({(TILE, "one"): draw_scores(0, 10 + size)})
    groups = ["large"] * size + [f"small {number}" for number in range(10)]
    found = mean_scores(table.with_columns(group=pl.Series(groups)))
    assert (found["low"][0] is not None) == is_sure


def test_a_member_that_is_better_everywhere_surely_wins() -> None:
    worse = draw_scores(2, 30)
    better = [value + 0.01 for value in worse]  # far less than graphs differ: pairing matters
    table = make_table({(TILE, "one"): better, (TILE, "two"): worse})
    first, mean = compare(table, "one", "two").rows(named=True)
    assert first["difference"] == pytest.approx(0.01)
    assert first["low"] == pytest.approx(0.01)
    assert first["probability"] == pytest.approx(1)
    assert mean["collection"] == "mean"
    back = compare(table, "two", "one")
    assert back["probability"].to_list() == pytest.approx([0, 0])
    assert back["difference"].to_list() == pytest.approx([-0.01, -0.01])


def test_the_mean_is_over_collections_and_not_over_graphs() -> None:
    few, many = [0.4, 0.6] * 3, [0.1, 0.3] * 50
    nothing = {(RANDOM, "two"): [0.0] * 6, (TILE, "two"): [0.0] * 100}
    not_of_one = {("layout:nlp:random", "two"): [1.0] * 3}
    table = make_table({(RANDOM, "one"): few, (TILE, "one"): many, **nothing, **not_of_one})
    found = compare(table, "one", "two")
    assert found["collection"].to_list() == [RANDOM, TILE, "mean"]
    assert found["difference"].to_list() == pytest.approx([0.5, 0.2, 0.35])
    assert found["graphs"].to_list() == [6, 100, 106]
    first, second, mean = found["standard_error"].to_list()
    assert mean == pytest.approx(np.hypot(first, second) / 2)
    scores = make_table({(DEFAULT, "m"): [0.4, 0.6] * 3, (TILE, "m"): [0.1] * 6}).drop("member")
    both = mean_over_collections(scores)
    assert (both.value, both.graphs) == (pytest.approx(0.3), 12)
    # The tiles do not vary: the freedom is that of the layouts alone.
    reach = stats.t.ppf(0.975, 5) * stats.sem([0.4, 0.6] * 3) / 2
    assert (both.low, both.high) == (pytest.approx(0.3 - reach), pytest.approx(0.3 + reach))


def test_a_mean_with_few_groups_in_a_collection_has_no_interval_either() -> None:
    many = {(RANDOM, "one"): draw_scores(9, 20), (RANDOM, "two"): [0.0] * 20}
    table = make_table({**many, (TILE, "one"): [0.9] * 4, (TILE, "two"): [0.8] * 4})
    first, few, mean = compare(table, "one", "two").rows(named=True)
    assert first["low"] < first["difference"] < first["high"]
    assert few["probability"] is few["low"] is None
    assert mean["probability"] is mean["low"] is None
    assert mean["difference"] == pytest.approx((first["difference"] + 0.1) / 2)
    scores = table.filter(member="one").drop("member")
    assert math.isnan(mean_over_collections(scores).low)
    assert not math.isnan(mean_over_collections(scores.filter(collection=RANDOM)).low)


def test_the_mean_of_all_needs_all_five() -> None:
    scores = make_table({(name, "m"): [0.4, 0.2] for name in NAMES}).drop("member")
    mean = mean_of_all(scores)
    assert mean is not None and mean.value == pytest.approx(0.3)
    assert mean_of_all(scores.filter(pl.col("collection") != TILE)) is None


def test_programs_that_stand_in_both_searches_make_the_mean_no_surer() -> None:
    """With the same differences in both, the second search says nothing new."""
    gaps = draw_scores(4, 30)
    scores = {(RANDOM, "one"): gaps, (RANDOM, "two"): [0.1] * 30}
    one_search = compare(make_table(scores), "one", "two").row(-1, named=True)
    scores |= {(DEFAULT, name): scores[RANDOM, name] for _, name in scores}
    both = compare(make_table(scores), "one", "two").row(-1, named=True)
    assert both["graphs"] == 60
    for name in ("difference", "low", "high", "standard_error", "probability"):
        assert both[name] == pytest.approx(one_search[name])


def test_what_a_table_lacks_is_named() -> None:
    table = make_table({(TILE, "one"): [0.1, 0.2, 0.3], (TILE, "two"): [0.1, 0.2]})
    with pytest.raises(InputError, match="two.*tile:xla:graph.*0002"):
        mean_scores(table)
    table = make_table({(TILE, "one"): [0.1], (RANDOM, "two"): [0.1]})
    for name, words in (
        ("three", "'three'.*`fastslow run`"), ("two", "one.*two"),
        ("distilled_tile", "`fastslow pack RUN --distill`"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            compare(table, "one", name)
    with pytest.raises(InputError, match="'tile:gpu'"):
        read_scores(make_table({("tile:gpu", "m"): [0.5]}))
