"""Mean ranks against brute force over all pairs of configurations."""

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ensembles.merge import merge, normalise
from solution.domain.predictions import RANKING_SCHEMA, SCHEMA
from solution.system.errors import InputError

Key = tuple[str, str, int]  # collection, graph, config
Model = tuple[int, int]  # fold, seed


def make_predictions(scores: dict[tuple[str, str, Model], list[int]]) -> pl.DataFrame:
    """The scores of every configuration of a graph by a model."""
    rows = [
        (collection, graph, config, *model, score)
        for (collection, graph, model), values in scores.items()
        for config, score in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def make_ranking(ranks: dict[Key, float]) -> pl.DataFrame:
    return pl.DataFrame(
        [(*key, rank) for key, rank in ranks.items()], schema=RANKING_SCHEMA, orient="row"
    )


def slow_rank(values: list[int], config: int) -> Fraction:
    """Configurations below, plus the middle of those that are level, over all of them."""
    below = sum(value < values[config] for value in values)
    level = sum(value == values[config] for value in values)
    return (below + Fraction(level + 1, 2)) / len(values)


def slow_ranks(scores: dict[tuple[str, str, Model], list[int]]) -> dict[Key, float]:
    """The mean rank of every configuration over the models that predict its graph."""
    collected: dict[Key, list[Fraction]] = {}
    for (collection, graph, _), values in scores.items():
        for config in range(len(values)):
            key = collection, graph, config
            collected.setdefault(key, []).append(slow_rank(values, config))
    return {key: float(sum(ranks) / len(ranks)) for key, ranks in collected.items()}


def to_ranks(frame: pl.DataFrame) -> dict[Key, float]:
    return {(c, g, config): score for c, g, config, score in frame.iter_rows()}


@st.composite
def score_tables(draw: st.DrawFn) -> dict[tuple[str, str, Model], list[int]]:
    """Integer scores with ties; a graph may be predicted by any of four models."""
    scores: dict[tuple[str, str, Model], list[int]] = {}
    models = st.tuples(st.integers(0, 1), st.integers(0, 1))
    for collection, graph in (("tile:xla", "a"), ("tile:xla", "b"), ("layout:xla:random", "a")):
        size = draw(st.integers(1, 7))
        for model in draw(st.lists(models, min_size=1, unique=True)):
            values = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
            scores[collection, graph, model] = values
    return scores


@given(score_tables())
@settings(max_examples=60, deadline=None)
def test_ranks_are_those_of_brute_force(scores: dict[tuple[str, str, Model], list[int]]) -> None:
    ranked = normalise(make_predictions(scores))
    assert ranked.schema == RANKING_SCHEMA
    assert ranked.equals(ranked.sort("collection", "graph", "config"))
    assert to_ranks(ranked) == pytest.approx(slow_ranks(scores), rel=1e-6)
    assert ranked["score"].is_between(0, 1, closed="right").all()


@given(score_tables(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_rows_does_not_matter(
    scores: dict[tuple[str, str, Model], list[int]], seed: int
) -> None:
    frame = make_predictions(scores)
    shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
    assert to_ranks(normalise(shuffled)) == pytest.approx(to_ranks(normalise(frame)), rel=1e-6)


@given(score_tables(), st.integers(1, 5), st.integers(-9, 9))
@settings(max_examples=40, deadline=None)
def test_a_monotone_change_inside_a_graph_changes_nothing(
    scores: dict[tuple[str, str, Model], list[int]], factor: int, shift: int
) -> None:
    first = next(iter(scores))
    changed = {**scores, first: [factor * value**3 + shift for value in scores[first]]}
    assert normalise(make_predictions(changed)).equals(normalise(make_predictions(scores)))


MEMBERS = st.dictionaries(
    st.sampled_from(["one", "two", "three"]), st.lists(st.integers(1, 16), min_size=4, max_size=4)
)
WEIGHTS = st.fixed_dictionaries(
    {name: st.floats(0.1, 10) for name in ("one", "two", "three")},
)


def make_member(values: list[int]) -> pl.DataFrame:
    keys: list[Key] = [("layout:xla:random", "a", 0), ("tile:xla", "a", 0)]
    keys += [("tile:xla", "a", 1), ("tile:xla", "b", 0)]
    return make_ranking({key: value / 16 for key, value in zip(keys, values, strict=True)})


@given(MEMBERS, WEIGHTS)
@settings(max_examples=40, deadline=None)
def test_the_merge_is_the_weighted_mean(
    members: dict[str, list[int]], weights: dict[str, float]
) -> None:
    assume(members)
    merged = merge({name: make_member(v) for name, v in members.items()}, weights)
    total = sum(weights[name] for name in members)
    expected = [
        sum(weights[name] * values[place] / 16 for name, values in members.items()) / total
        for place in range(4)
    ]
    assert merged.schema == RANKING_SCHEMA
    assert merged.equals(merged.sort("collection", "graph", "config"))
    found = to_ranks(merged)
    assert [found[key] for key in to_ranks(make_member([1] * 4))] == pytest.approx(expected)


@given(MEMBERS, WEIGHTS, st.sampled_from([0.25, 2.0, 1024.0]))
@settings(max_examples=30, deadline=None)
def test_only_the_ratios_of_weights_matter(
    members: dict[str, list[int]], weights: dict[str, float], factor: float
) -> None:
    assume(members)
    frames = {name: make_member(values) for name, values in members.items()}
    scaled = {name: weight * factor for name, weight in weights.items()}
    assert merge(frames, scaled).equals(merge(frames, weights))


def test_weights_may_be_whole_numbers() -> None:
    frames = {"one": make_member([4, 4, 4, 4]), "two": make_member([8, 8, 8, 8])}
    merged = merge(frames, {"one": 1, "two": 0.5})
    assert merged["score"].to_list() == pytest.approx([(4 + 4) / 1.5 / 16] * 4)


@pytest.mark.parametrize(
    ("graph", "config", "named"),
    [
        ("b", 0, "two has no prediction for tile:xla:b, configuration 0"),
        ("a", 1, "two has no prediction for tile:xla:a, configuration 1"),
    ],
)
def test_a_gap_of_one_member_names_it_and_the_graph(graph: str, config: int, named: str) -> None:
    whole = make_member([1, 2, 3, 4])
    gap = (
        (pl.col("collection") == "tile:xla")
        & (pl.col("graph") == graph)
        & (pl.col("config") == config)
    )
    with pytest.raises(InputError, match=named):
        merge({"one": whole, "two": whole.filter(~gap)}, {"one": 1.0, "two": 1.0})
