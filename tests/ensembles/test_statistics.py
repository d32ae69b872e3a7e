"""Paired statistics against slow loops and textbook formulas."""

import numpy as np
import pytest

from ensembles.statistics import bootstrap, compare, detectable_difference
from solution.system.errors import InputError
from tests.made.ballots import make_score_table as make_table

TILE = "tile:xla"


def draw_scores(seed: int, graphs: int) -> list[float]:
    return np.random.default_rng(seed).normal(0.5, 0.2, graphs).tolist()


def test_the_interval_is_about_two_standard_errors_wide() -> None:
    values = draw_scores(1, 200)
    line = bootstrap(make_table({("tile:xla", "one"): values})).row(0, named=True)
    assert line["value"] == pytest.approx(np.mean(values))
    assert line["graphs"] == 200
    assert line["standard_error"] == pytest.approx(np.std(values) / np.sqrt(200), rel=0.05)
    assert line["high"] - line["low"] == pytest.approx(2 * 1.96 * line["standard_error"], rel=0.05)


def test_a_single_graph_has_no_interval_and_no_probability() -> None:
    table = make_table({("tile:xla", "one"): [0.5], ("tile:xla", "two"): [0.4]})
    assert bootstrap(table)["low"].to_list() == [None, None]
    found = compare(table, "one", "two")
    for column in ("low", "high", "standard_error", "probability"):
        assert found[column].to_list() == [None, None]
    assert detectable_difference(table, "one")["detectable"].to_list() == [None]


def test_a_member_that_is_better_everywhere_surely_wins() -> None:
    worse = draw_scores(2, 30)
    better = [value + 0.01 for value in worse]  # far less than graphs differ: pairing matters
    table = make_table({("tile:xla", "one"): better, ("tile:xla", "two"): worse})
    own, mean = compare(table, "one", "two").rows(named=True)
    assert own["difference"] == pytest.approx(0.01)
    assert own["low"] == pytest.approx(0.01)
    assert own["probability"] == 1
    assert mean["collection"] == "mean"
    back = compare(table, "two", "one")
    assert back["probability"].to_list() == [0, 0]
    assert back["difference"].to_list() == pytest.approx([-0.01, -0.01])


def test_equals_win_half_of_the_time() -> None:
    same = draw_scores(3, 20)
    table = make_table({("tile:xla", "one"): same, ("tile:xla", "two"): same})
    assert compare(table, "one", "two")["probability"].to_list() == [0.5, 0.5]


def test_the_mean_is_over_collections_and_not_over_graphs() -> None:
    few, many = [0.4, 0.6] * 2, [0.1, 0.3] * 50
    table = make_table(
        {
            ("layout:xla:random", "one"): few,
            ("layout:xla:random", "two"): [0.0] * 4,
            ("tile:xla", "one"): many,
            ("tile:xla", "two"): [0.0] * 100,
            ("layout:nlp:random", "two"): [1.0] * 3,  # one does not predict it
        }
    )
    found = compare(table, "one", "two")
    assert found["collection"].to_list() == ["layout:xla:random", "tile:xla", "mean"]
    assert found["difference"].to_list() == pytest.approx([0.5, 0.2, 0.35])
    assert found["graphs"].to_list() == [4, 100, 104]
    first, second, mean = found["standard_error"].to_list()
    assert mean == pytest.approx(np.hypot(first, second) / 2, rel=0.05)


def test_a_mean_with_a_single_graph_in_a_collection_has_none_either() -> None:
    table = make_table(
        {
            ("layout:xla:random", "one"): draw_scores(9, 20),
            ("layout:xla:random", "two"): [0.0] * 20,
            ("tile:xla", "one"): [0.9],
            ("tile:xla", "two"): [0.8],
        }
    )
    own, single, mean = compare(table, "one", "two").rows(named=True)
    assert own["probability"] == 1
    assert own["low"] < own["difference"] < own["high"]
    assert single["probability"] is single["low"] is None
    assert mean["probability"] is mean["low"] is None
    assert mean["difference"] == pytest.approx((own["difference"] + 0.1) / 2)


def test_programs_that_stand_in_both_searches_make_the_mean_no_surer() -> None:
    """With the same differences in both, the second search says nothing new."""
    gaps = draw_scores(4, 30)
    scores = {("layout:xla:random", "one"): gaps, ("layout:xla:random", "two"): [0.1] * 30}
    one_search = compare(make_table(scores), "one", "two").row(-1, named=True)
    scores |= {
        ("layout:xla:default", name): scores["layout:xla:random", name] for _, name in scores
    }
    both = compare(make_table(scores), "one", "two").row(-1, named=True)
    assert both["graphs"] == 60
    for name in ("difference", "low", "high", "standard_error", "probability"):
        assert both[name] == pytest.approx(one_search[name])


def test_the_probability_is_that_of_a_normal_mean() -> None:
    from statistics import NormalDist

    gaps = np.random.default_rng(5).normal(0.1, 1, 100)
    table = make_table({("tile:xla", "one"): gaps.tolist(), ("tile:xla", "two"): [0.0] * 100})
    expected = NormalDist().cdf(gaps.mean() / (gaps.std() / 10))
    assert compare(table, "one", "two")["probability"][0] == pytest.approx(expected, abs=0.02)


def test_a_detectable_difference_is_found_with_its_power() -> None:
    generator = np.random.default_rng(6)
    gaps = generator.normal(0, 0.1, 50)
    table = make_table({("tile:xla", "one"): gaps.tolist(), ("tile:xla", "two"): [0.0] * 50})
    line = detectable_difference(table, "two").row(0, named=True)
    error = line["deviation"] / np.sqrt(50)
    assert line["detectable"] == pytest.approx((1.95996 + 0.84162) * error, rel=1e-4)
    drawn = generator.normal(line["detectable"], error, 20_000)
    assert np.mean(np.abs(drawn) > 1.96 * error) == pytest.approx(0.8, abs=0.02)


def test_graphs_of_a_group_are_drawn_together() -> None:
    """Four sizes of each program, which differ far less than programs do."""
    generator = np.random.default_rng(7)
    programs = generator.normal(0.1, 0.2, 50)
    values = (programs[:, None] + generator.normal(0, 0.01, (50, 4))).ravel()
    table = make_table({(TILE, "one"): values.tolist(), (TILE, "two"): [0.0] * 200}, of_a_group=4)
    error = programs.std(ddof=1) / np.sqrt(50)
    assert bootstrap(table)["standard_error"][0] == pytest.approx(error, rel=0.05)
    assert compare(table, "one", "two")["standard_error"][0] == pytest.approx(error, rel=0.05)
    line = detectable_difference(table, "two").row(0, named=True)
    assert line["graphs"] == 200
    assert line["deviation"] == pytest.approx(values.std(ddof=1))
    assert line["detectable"] == pytest.approx((1.95996 + 0.84162) * error, rel=0.01)


def test_graphs_of_a_single_group_have_neither_interval_nor_probability() -> None:
    table = make_table({(TILE, "one"): [0.5, 0.7], (TILE, "two"): [0.4, 0.2]}, of_a_group=2)
    assert bootstrap(table)["low"].to_list() == [None, None]
    assert compare(table, "one", "two")["probability"].to_list() == [None, None]
    assert detectable_difference(table, "one")["detectable"].to_list() == [None]


def test_the_same_seed_gives_the_same_table() -> None:
    table = make_table({("tile:xla", "one"): draw_scores(8, 9), ("tile:xla", "two"): [0.3] * 9})
    assert bootstrap(table, 500, seed=3).equals(bootstrap(table, 500, seed=3))
    assert not bootstrap(table, 500, seed=3).equals(bootstrap(table, 500, seed=4))


def test_a_missing_graph_is_named_with_its_member() -> None:
    table = make_table({("tile:xla", "one"): [0.1, 0.2, 0.3], ("tile:xla", "two"): [0.1, 0.2]})
    with pytest.raises(InputError, match="two has no score for tile:xla:graph 0002"):
        bootstrap(table)


def test_an_unknown_member_is_refused_with_the_names_there_are() -> None:
    table = make_table({("tile:xla", "one"): [0.1], ("layout:xla:random", "two"): [0.1]})
    with pytest.raises(
        InputError, match=r"'three' has no scores out of fold; there are of: one, two"
    ):
        compare(table, "one", "three")
    for name, command in (("three", "run"), ("distilled_tile", "pack RUN --distill")):
        with pytest.raises(InputError, match=f"`fastslow {command}` goes on with it"):
            compare(table, "one", name)
    with pytest.raises(InputError, match="no collection in common"):
        compare(table, "one", "two")


def test_a_full_bootstrap_holds_every_interval() -> None:
    """10,000 resamples, 5 collections, 20 members, as many graphs as the competition labels."""
    sizes = {"layout:xla:default": 68, "layout:xla:random": 76, "layout:nlp:default": 218}
    sizes |= {"layout:nlp:random": 227, "tile:xla": 531}
    scores = {
        (name, f"member {m:02}"): draw_scores(m, size)
        for name, size in sizes.items()
        for m in range(20)
    }
    found = bootstrap(make_table(scores))
    assert len(found) == 100
    assert (found["low"] < found["value"]).all()
    assert (found["high"] > found["value"]).all()
