"""Folds keep together what belongs together, are balanced, and depend on nothing else."""

from collections import defaultdict
from random import Random

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from solution.domain.collection import NAMES
from solution.training.folds import NO_FOLD, Scheme, assign_folds, split_inner

COLUMNS = ("collection", "graph", "architecture", "labelled")
SCHEMES: tuple[Scheme, ...] = ("family", "architecture", "graph")

Row = tuple[str, str, str, bool]
Key = tuple[str, str]

rows_of_any_kind = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([f"graph-{number}" for number in range(10)]),
        st.sampled_from([f"architecture-{number}" for number in range(6)]),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=40,
)
schemes = st.sampled_from(SCHEMES)
fold_counts = st.integers(2, 6)
seeds = st.integers(0, 5)
inner_groups = st.lists(st.sampled_from("abcdefgh"), max_size=30)
shares = st.floats(0.01, 0.9)


def draw_folds(rows: list[Row], scheme: Scheme, num_folds: int, seed: int = 0) -> list[int]:
    schema = dict(zip(COLUMNS, (pl.String, pl.String, pl.String, pl.Boolean), strict=True))
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    families = pl.Series("family", [family_of(row) for row in rows], pl.String)
    result = assign_folds(frame.with_columns(families), scheme, num_folds, seed)
    assert result.select(COLUMNS).equals(frame)
    return result["fold"].to_list()


def source(collection: str) -> str:
    """xla, nlp or tile."""
    kind, name = collection.split(":")[:2]
    return "tile" if kind == "tile" else name


def family_of(row: Row) -> str:
    """Two architectures are a family."""
    return f"family-{int(row[2].split('-')[1]) // 2}" if "-" in row[2] else row[2]


def group_of(row: Row, scheme: Scheme) -> Key:
    collection, graph, architecture, _ = row
    groups = {"family": family_of(row), "architecture": architecture, "graph": graph}
    return source(collection), groups[scheme]


def folds_of(
    rows: list[Row], folds: list[int], scheme: Scheme
) -> tuple[dict[Key, set[int]], dict[str, set[int]], dict[str, set[Key]]]:
    """The folds of each group and of each collection, and the groups of each collection."""
    of_group: dict[Key, set[int]] = defaultdict(set)
    of_collection: dict[str, set[int]] = defaultdict(set)
    groups: dict[str, set[Key]] = defaultdict(set)
    for row, fold in zip(rows, folds, strict=True):
        if row[3]:
            of_group[group_of(row, scheme)].add(fold)
            of_collection[row[0]].add(fold)
            groups[row[0]].add(group_of(row, scheme))
    return of_group, of_collection, groups


@settings(deadline=None)
@given(rows_of_any_kind, schemes, fold_counts, seeds)
def test_labelled_graphs_have_a_fold_and_others_have_none(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int
) -> None:
    for row, fold in zip(rows, draw_folds(rows, scheme, num_folds, seed), strict=True):
        assert 0 <= fold < num_folds if row[3] else fold == NO_FOLD


@settings(deadline=None)
@given(rows_of_any_kind, schemes, fold_counts, seeds)
def test_group_of_a_source_is_never_divided(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int
) -> None:
    of_group, _, _ = folds_of(rows, draw_folds(rows, scheme, num_folds, seed), scheme)
    assert all(len(folds) == 1 for folds in of_group.values())


@settings(deadline=None)
@given(rows_of_any_kind, schemes, fold_counts, seeds, st.randoms(use_true_random=False))
def test_order_of_the_graphs_does_not_matter(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int, random: Random
) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    shuffled = draw_folds([rows[index] for index in order], scheme, num_folds, seed)
    folds = draw_folds(rows, scheme, num_folds, seed)
    assert shuffled == [folds[index] for index in order]


@settings(deadline=None)
@given(rows_of_any_kind, schemes, fold_counts, seeds)
def test_unlabelled_graphs_do_not_change_the_folds_of_others(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int
) -> None:
    folds = draw_folds(rows, scheme, num_folds, seed)
    labelled = [index for index, row in enumerate(rows) if row[3]]
    alone = draw_folds([rows[index] for index in labelled], scheme, num_folds, seed)
    assert alone == [folds[index] for index in labelled]


@settings(deadline=None)
@given(rows_of_any_kind, schemes, fold_counts, seeds)
def test_collection_with_two_groups_that_no_other_has_is_divided(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int
) -> None:
    folds = draw_folds(rows, scheme, num_folds, seed)
    _, of_collection, groups = folds_of(rows, folds, scheme)
    for name, own in groups.items():
        others = set().union(*(groups[other] for other in groups if other != name))
        assert len(own - others) < 2 or len(of_collection[name]) > 1


XLA_DEFAULT, XLA_RANDOM = "layout:xla:default", "layout:xla:random"
SHARED_GROUPS: list[Row] = [
    (XLA_RANDOM, "graph-0", "architecture-0", True),
    (XLA_RANDOM, "graph-1", "architecture-0", True),
    (XLA_DEFAULT, "graph-2", "architecture-1", True),
    (XLA_RANDOM, "graph-2", "architecture-1", True),
    (XLA_DEFAULT, "graph-3", "architecture-2", True),
    (XLA_RANDOM, "graph-3", "architecture-2", True),
]


@settings(deadline=None)
@given(rows_of_any_kind, schemes, fold_counts, seeds)
@example(SHARED_GROUPS, "architecture", 2, 0)
def test_collection_with_two_groups_is_divided(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int
) -> None:
    folds = draw_folds(rows, scheme, num_folds, seed)
    _, of_collection, groups = folds_of(rows, folds, scheme)
    for name in groups:
        assert len(groups[name]) < 2 or len(of_collection[name]) > 1


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 40), schemes, fold_counts, seeds)
def test_folds_of_single_graphs_differ_by_one_at_most(
    name: str, count: int, scheme: Scheme, num_folds: int, seed: int
) -> None:
    rows = [(name, f"graph-{i}", f"architecture-{2 * i}", True) for i in range(count)]
    sizes = np.bincount(draw_folds(rows, scheme, num_folds, seed), minlength=num_folds)
    assert sizes.max() - sizes.min() <= 1


def test_seed_changes_the_folds() -> None:
    rows = [("tile:xla", f"graph-{i}", f"architecture-{i}", True) for i in range(20)]
    drawn = {tuple(draw_folds(rows, "graph", 4, seed)) for seed in range(5)}
    assert len(drawn) == 5


def test_program_in_both_layout_searches_has_one_fold_and_tile_is_apart() -> None:
    rows: list[Row] = [(name, "graph", "architecture", True) for name in NAMES]
    frame = pl.DataFrame(rows, schema=list(COLUMNS), orient="row")
    groups = assign_folds(frame, "architecture", 3, 0)["group"].to_list()
    sources = ("xla", "xla", "nlp", "nlp", "tile")
    assert groups == [f"{name}/architecture" for name in sources]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_other_columns_are_kept(scheme: Scheme) -> None:
    frame = pl.DataFrame({
        "path": ["a", "b"], "collection": ["tile:xla"] * 2, "graph": ["a", "b"],
        "architecture": ["x", "y"], "family": ["p", "q"], "labelled": [True, False],
    })  # fmt: skip
    result = assign_folds(frame, scheme, 2, 0)
    assert result.columns == [*frame.columns, "group", "fold"]
    assert result["path"].to_list() == ["a", "b"]


@given(inner_groups, shares, seeds)
def test_inner_split_takes_whole_groups_and_never_most(
    groups: list[str], share: float, seed: int
) -> None:
    mask = split_inner(groups, share, seed)
    chosen = {group for group, inside in zip(groups, mask, strict=True) if inside}
    assert mask.tolist() == [group in chosen for group in groups]
    assert mask.sum() <= len(groups) / 2


@given(inner_groups, shares, seeds)
def test_inner_split_is_empty_below_three_groups_only(
    groups: list[str], share: float, seed: int
) -> None:
    assert split_inner(groups, share, seed).any() == (len(set(groups)) >= 3)


@given(inner_groups, shares, seeds)
def test_inner_split_is_fixed_and_independent_of_the_order(
    groups: list[str], share: float, seed: int
) -> None:
    mask = split_inner(groups, share, seed)
    assert np.array_equal(mask, split_inner(groups, share, seed))
    assert np.array_equal(mask[::-1], split_inner(groups[::-1], share, seed))


@given(st.integers(3, 100), st.floats(0.01, 0.5), seeds)
def test_inner_split_of_single_graphs_takes_the_share(count: int, share: float, seed: int) -> None:
    mask = split_inner([f"group-{i}" for i in range(count)], share, seed)
    assert mask.sum() == min(np.ceil(share * count), count // 2)


def test_inner_split_depends_on_the_seed() -> None:
    groups = [f"group-{i}" for i in range(20)]
    assert len({split_inner(groups, 0.2, seed).tobytes() for seed in range(5)}) == 5
