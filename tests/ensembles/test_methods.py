"""Every merging method against brute force over all pairs of configurations."""

from fractions import Fraction
from statistics import fmean, pstdev

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensembles.merge import merge, normalise
from ensembles.votes import METHODS, Method, merge_votes, rank, to_shares
from solution.domain.predictions import RANKING_SCHEMA, SCHEMA, make_frame
from solution.system.errors import InputError

Key = tuple[str, str, int]  # collection, graph, config
Model = tuple[int, int]  # fold, seed
Scores = dict[tuple[str, str, Model], list[int]]  # by collection, graph and model


def make_predictions(scores: Scores) -> pl.DataFrame:
    """The scores of every configuration of a graph by a model."""
    rows = [
        (collection, graph, config, *model, score)
        for (collection, graph, model), values in scores.items()
        for config, score in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def slow_rank(values: list[int], config: int) -> Fraction:
    """Configurations below, plus the middle of those that are level, over all of them."""
    below = sum(value < values[config] for value in values)
    level = sum(value == values[config] for value in values)
    return (below + Fraction(level + 1, 2)) / len(values)


def to_ranks(frame: pl.DataFrame) -> dict[Key, float]:
    return {(c, g, config): score for c, g, config, score in frame.iter_rows()}


@st.composite
def score_tables(draw: st.DrawFn) -> Scores:
    """Integer scores with ties; a graph may be predicted by any of four models."""
    scores: Scores = {}
    models = st.tuples(st.integers(0, 1), st.integers(0, 1))
    for collection, graph in (("tile:xla", "a"), ("tile:xla", "b"), ("layout:xla:random", "a")):
        size = draw(st.integers(1, 7))
        for model in draw(st.lists(models, min_size=1, unique=True)):
            values = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
            scores[collection, graph, model] = values
    return scores


def slow_scale(values: list[int], config: int, method: Method) -> float:
    value, size = values[config], len(values)
    rank = float(slow_rank(values, config)) * size
    if method in ("mean_rank", "median_rank"):
        return rank / size
    if method == "reciprocal_rank":
        return -1 / (60 + rank)
    if method == "borda":  # a point for each that is beaten
        return 1 - sum(other > value for other in values) / size
    if min(values) == max(values):
        return 0.0
    if method == "min_max":
        return (value - min(values)) / (max(values) - min(values))
    return (value - fmean(values)) / pstdev(values)


def slow_normalise(scores: Scores, method: Method) -> dict[tuple[str, str, int], float]:
    collected: dict[tuple[str, str, int], list[float]] = {}
    for (collection, graph, _), values in scores.items():
        for config in range(len(values)):
            key = collection, graph, config
            collected.setdefault(key, []).append(slow_scale(values, config, method))
    return {key: fmean(scored) for key, scored in collected.items()}


def slow_merge(votes: list[float], weights: list[float], method: Method) -> float:
    if method != "median_rank":
        return sum(v * w for v, w in zip(votes, weights, strict=True)) / sum(weights)
    # A vote for every unit of weight, then the plain median.
    repeated = [v for v, w in zip(votes, weights, strict=True) for _ in range(int(w))]
    return float(np.median(repeated))


@pytest.mark.parametrize("method", METHODS)
@given(scores=score_tables())
@settings(max_examples=20, deadline=None)
def test_the_scale_is_that_of_brute_force(method: Method, scores: Scores) -> None:
    scaled = normalise(make_predictions(scores), method)
    assert scaled.schema == RANKING_SCHEMA
    assert scaled.equals(scaled.sort("collection", "graph", "config"))
    expected = slow_normalise(scores, method)
    assert to_ranks(scaled) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@st.composite
def member_scores(draw: st.DrawFn) -> list[Scores]:
    """Members of the same configurations with ties, each with different folds and seeds."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=2, max_size=2))
    models = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, unique=True)
    members = []
    for _ in range(draw(st.integers(1, 4))):
        scores: Scores = {}
        for graph, size in zip("ab", sizes, strict=True):
            for model in draw(models):
                values = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
                scores["tile:xla", graph, model] = values
        members.append(scores)
    return members


WEIGHTS = st.lists(st.integers(1, 5).map(float), min_size=4, max_size=4)


@pytest.mark.parametrize("method", METHODS)
@given(members=member_scores(), weights=WEIGHTS)
@settings(max_examples=10, deadline=None)
def test_merge_by_brute_force(method: Method, members: list[Scores], weights: list[float]) -> None:
    names = [f"member {number}" for number in range(len(members))]
    shares = dict(zip(names, weights, strict=False))
    scaled = {
        n: normalise(make_predictions(s), method) for n, s in zip(names, members, strict=True)
    }
    merged = to_ranks(merge(scaled, shares, method))
    votes = [to_ranks(scaled[name]) for name in names]
    expected = {
        key: slow_merge([vote[key] for vote in votes], list(shares.values()), method)
        for key in votes[0]
    }
    assert merged == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("factor", [1e308, 1e-300, 5e-324])
@pytest.mark.parametrize("method", METHODS)
def test_only_ratios_of_weights_matter_however_large_they_are(
    method: Method, factor: float
) -> None:
    scores = {"one": [1, 2, 3, 4, 4], "two": [4, 1, 2, 1, 3]}
    members = {
        name: normalise(make_predictions({("tile:xla", "a", (0, 0)): scored}), method)
        for name, scored in scores.items()
    }
    equal = merge(members, {"one": 1.0, "two": 1.0}, method)
    assert merge(members, {"one": factor, "two": factor}, method).equals(equal)
    assert equal["score"].n_unique() > 1


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=9))
@settings(deadline=None)
def test_shares_are_weights_over_their_sum_to_the_last_digit(weights: list[float]) -> None:
    values = np.array(weights)
    np.testing.assert_array_equal(to_shares(values), values / values.sum())


@pytest.mark.parametrize("method", METHODS)
def test_equal_scores_stay_exactly_equal(method: Method) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 50, 40).tolist()
    members = {
        name: normalise(make_predictions({("tile:xla", "a", (0, 0)): values * 3}), method)
        for name in ("one", "two", "three")
    }
    merged = merge(members, {"one": 0.1, "two": 0.7, "three": 1 / 3}, method)["score"].to_list()
    assert merged[:40] == merged[40:80] == merged[80:]


def test_a_gap_of_one_member_is_named() -> None:
    whole = normalise(make_predictions({("tile:xla", "a", (0, 0)): [1, 2]}))
    with pytest.raises(InputError, match="two.*tile:xla:a.*1"):
        merge({"one": whole, "two": whole.filter(pl.col("config") == 0)}, {"one": 1, "two": 1})


@given(score_tables(), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_rows_does_not_matter(scores: Scores, seed: int) -> None:
    frame = make_predictions(scores)
    shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
    assert to_ranks(normalise(shuffled)) == pytest.approx(to_ranks(normalise(frame)), rel=1e-6)


Votes = dict[str, list[list[int]]]


@st.composite
def drawn_votes(draw: st.DrawFn) -> Votes:
    """By member, the scores of its models; few values, so that many are equal."""
    configs = draw(st.integers(1, 12))
    scores = st.lists(st.integers(-3, 3), min_size=configs, max_size=configs)
    return {
        name: draw(st.lists(scores, min_size=1, max_size=4))
        for name in draw(st.sets(st.sampled_from("abc"), min_size=1))
    }


@given(st.sampled_from(METHODS), drawn_votes(), st.lists(st.integers(1, 5), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_arrays_are_merged_as_frames_are(method: Method, drawn: Votes, sizes: list[int]) -> None:
    weights = dict(zip("abc", map(float, sizes), strict=True))
    votes = {name: [np.array(scored, np.float32) / 7 for scored in drawn[name]] for name in drawn}
    frames = {}
    for name, scored in votes.items():
        configs = np.arange(len(scored[0]))
        models = [make_frame(("c", "g"), configs, scores, k, 0) for k, scores in enumerate(scored)]
        frames[name] = normalise(pl.concat(models), method)
    expected = merge(frames, weights, method)["score"].to_numpy()
    found = merge_votes(votes, weights, method)
    assert found.dtype == np.float32
    if method == "z_score":  # means are added up in another order
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert found.tobytes() == expected.tobytes()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_ranks_are_those_of_counting(values: list[int]) -> None:
    shares = [float(slow_rank(values, config)) for config in range(len(values))]
    np.testing.assert_allclose(rank(np.array(values)), np.array(shares) * len(values))
