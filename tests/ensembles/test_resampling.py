"""Groups of graphs that are drawn again, against slow loops and worlds whose true mean is known."""

import dataclasses
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensembles.resampling import (
    CollectionScores,
    find_interval,
    mean_of_all,
    mean_over_collections,
    read_scores,
    resample_means,
)
from solution.domain.collection import NAMES
from solution.system.errors import InputError
from tests.made.ballots import make_score_table

DEFAULT, RANDOM, TILE = "layout:xla:default", "layout:xla:random", "tile:xla"


def make_part(
    collection: str, groups: list[str], members: int = 1, seed: int = 0
) -> CollectionScores:
    """A graph for each entry of `groups`."""
    scores = np.random.default_rng(seed).normal(0.5, 0.2, size=(len(groups), members))
    graphs = [f"{group} {place}" for place, group in enumerate(groups)]
    return CollectionScores(collection, graphs, groups, [f"m{m}" for m in range(members)], scores)


def draw_slowly(
    parts: list[CollectionScores], source: str, resamples: int, seed: int
) -> list[list[list[float]]]:
    """The same draws, group by group, each with all its graphs."""
    groups = sorted({group for part in parts for group in part.groups})
    generator = np.random.default_rng([seed, *source.encode()])
    drawn = generator.integers(len(groups), size=(resamples, len(groups)), dtype=np.int32)
    found = []
    for part in parts:
        means = []
        for row in drawn:
            own = []
            for number in row:
                for graph, group in enumerate(part.groups):
                    if group == groups[number]:
                        own.append(part.scores[graph])
            means.append(np.mean(own, axis=0) if own else [math.nan] * part.scores.shape[1])
        found.append(means)
    return found


@given(st.data(), st.integers(1, 4), st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_resampled_means_are_those_of_a_slow_loop(
    data: st.DataObject, members: int, resamples: int, seed: int
) -> None:
    groups = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=12)  # of the graphs
    layout = [
        make_part(name, data.draw(groups), members, k) for k, name in enumerate([DEFAULT, RANDOM])
    ]
    tile = [make_part(TILE, data.draw(groups), members, 2)]
    slow = draw_slowly(layout, "xla", resamples, seed) + draw_slowly(tile, "tile", resamples, seed)
    found = resample_means([*layout, *tile], resamples, seed)
    for own, expected in zip(found, slow, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-12)


def test_resampling_in_chunks_keeps_the_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    part = make_part(TILE, [f"k{k}" for k in range(40)])
    monkeypatch.setattr("ensembles.resampling.CHUNK_CELLS", 1000)
    (means,) = resample_means([part], 5000)
    assert means.mean() == pytest.approx(part.scores.mean(), abs=0.005)
    assert means.std() == pytest.approx(part.scores.std() / np.sqrt(40), rel=0.05)


def test_what_one_search_gains_and_the_other_loses_cancels_in_every_resample() -> None:
    part = make_part(DEFAULT, [f"p{p}" for p in range(12)])
    other = dataclasses.replace(part, collection=RANDOM, scores=-part.scores)
    first, second = resample_means([part, other], 300)
    np.testing.assert_allclose(first + second, 0, atol=1e-12)


def test_sources_are_drawn_by_themselves() -> None:
    """The same names in xla and tile are not the same programs."""
    part = make_part(DEFAULT, [f"p{p}" for p in range(30)])
    other = dataclasses.replace(part, collection=TILE)
    first, second = resample_means([part, other], 4000)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.1


def test_a_collection_is_drawn_alike_whatever_other_sources_there_are() -> None:
    part, other = make_part(DEFAULT, list("abcd")), make_part(TILE, list("xyz"))
    (alone,) = resample_means([part], 50)
    np.testing.assert_array_equal(resample_means([other, part], 50)[1], alone)


def test_sizes_of_one_program_make_a_mean_no_surer() -> None:
    """Ten sizes that score alike say no more than one of them."""
    part = make_part(TILE, [f"p{p}" for p in range(20)])
    sizes = CollectionScores(
        TILE,
        [f"g{g}" for g in range(200)],
        [group for group in part.groups for _ in range(10)],
        part.members,
        part.scores.repeat(10, axis=0),
    )
    (one,), (ten,) = resample_means([part], 300), resample_means([sizes], 300)
    np.testing.assert_allclose(ten, one, atol=1e-12)
    assert (sizes.draws, part.draws) == (20, 20)


def test_graphs_of_a_single_group_have_no_interval() -> None:
    scores = make_score_table({(DEFAULT, "m"): [0.4, 0.2], (RANDOM, "m"): [0.2] * 4}, of_a_group=2)
    assert math.isnan(mean_over_collections(scores).low)
    assert not math.isnan(mean_over_collections(scores.filter(collection=RANDOM)).low)


def draw_world(generator: np.random.Generator, programs: int, sizes: int = 1) -> pl.DataFrame:
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


@pytest.mark.parametrize("sizes", [1, 4])
def test_the_interval_of_a_mean_holds_the_truth_about_as_often_as_it_says(sizes: int) -> None:
    """In 94 worlds of a hundred. With every collection drawn by itself it is 85, and with every
    one of four sizes drawn by itself 66."""
    generator = np.random.default_rng(0)
    worlds = [draw_world(generator, 30, sizes) for _ in range(200)]
    means = [mean_over_collections(world, resamples=300) for world in worlds]
    assert 0.91 <= np.mean([mean.low <= 0 <= mean.high for mean in means]) <= 0.98


def test_the_mean_is_over_collections_and_not_over_graphs() -> None:
    scores = make_score_table({(DEFAULT, "m"): [0.4, 0.6], (TILE, "m"): [0.1] * 6}).drop("member")
    mean = mean_over_collections(scores)
    assert (mean.value, mean.graphs) == (pytest.approx(0.3), 8)
    assert (mean.low, mean.high) == (pytest.approx(0.25), pytest.approx(0.35))


def test_a_single_graph_in_a_collection_leaves_the_mean_without_an_interval() -> None:
    scores = make_score_table({(DEFAULT, "m"): [0.4], (RANDOM, "m"): [0.2] * 4}).drop("member")
    mean = mean_over_collections(scores)
    assert mean.value == pytest.approx(0.3)
    assert math.isnan(mean.low) and math.isnan(mean.high)


def test_the_mean_of_all_needs_all_five() -> None:
    scores = make_score_table({(name, "m"): [0.4, 0.2] for name in NAMES}).drop("member")
    mean = mean_of_all(scores)
    assert mean is not None and mean.value == pytest.approx(0.3)
    assert mean_of_all(scores.filter(pl.col("collection") != TILE)) is None


def test_resamples_without_the_collection_do_not_count() -> None:
    """One group of a hundred has it: most resamples do not draw it."""
    parts = [make_part(DEFAULT, [f"p{p}" for p in range(100)]), make_part(RANDOM, ["p0", "p1"])]
    _, few = resample_means(parts, 2000)
    assert 0.05 < np.isnan(few).mean() < 0.25  # exp(-2) of them
    found = find_interval(few[:, 0], draws=2)
    assert found is not None
    assert (found.low, found.high) == (few[~np.isnan(few)].min(), few[~np.isnan(few)].max())


def test_a_collection_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="'tile:gpu' is not a collection"):
        read_scores(make_score_table({("tile:gpu", "m"): [0.5]}))
