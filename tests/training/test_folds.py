"""Folds keep together what belongs together, are balanced, and depend on nothing else."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.collection import NAMES
from solution.domain.families import ALIKE, find_families, name_family
from solution.training.folds import NO_FOLD, Scheme, assign_folds, split_inner

COLUMNS = {"collection": str, "graph": str, "architecture": str, "labelled": bool}
SEEDS = st.integers(0, 5)

Row = tuple[str, str, str, bool]

rows_of_any_kind = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([f"graph-{number}" for number in range(10)]),
        st.sampled_from([f"architecture-{number}" for number in range(6)]),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=40,
)


def draw_folds(rows: list[Row], scheme: Scheme, num_folds: int, seed: int = 0) -> list[int]:
    frame = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    families = pl.Series("family", [family_of(row) for row in rows], pl.String)
    result = assign_folds(frame.with_columns(families), scheme, num_folds, seed)
    assert result.select(*COLUMNS).equals(frame)
    return result["fold"].to_list()


def family_of(row: Row) -> str:
    """Two architectures are a family."""
    return f"family-{int(row[2].split('-')[1]) // 2}"


def group_of(row: Row, scheme: Scheme) -> tuple[str, str]:
    """What is to be in one fold: of xla, of nlp or of tile."""
    kind, source, *_ = row[0].split(":")
    groups = {"family": family_of(row), "architecture": row[2], "graph": row[1]}
    return "tile" if kind == "tile" else source, groups[scheme]


@settings(deadline=None)
@given(
    rows_of_any_kind,
    st.sampled_from(("family", "architecture", "graph")),
    st.integers(2, 6),
    SEEDS,
    st.randoms(use_true_random=False),
)
def test_folds_keep_groups_together_and_depend_on_labelled_graphs_alone(
    rows: list[Row], scheme: Scheme, num_folds: int, seed: int, random: Random
) -> None:
    folds = draw_folds(rows, scheme, num_folds, seed)
    of_group, of_collection, groups = defaultdict(set), defaultdict(set), defaultdict(set)
    for row, fold in zip(rows, folds, strict=True):
        assert 0 <= fold < num_folds if row[3] else fold == NO_FOLD
        if row[3]:
            of_group[group_of(row, scheme)].add(fold)
            of_collection[row[0]].add(fold)
            groups[row[0]].add(group_of(row, scheme))
    assert all(len(found) == 1 for found in of_group.values())
    for name, ours in groups.items():  # what has two groups of its own is divided
        others = set().union(*(groups[other] for other in groups if other != name))
        assert len(ours - others) < 2 or len(of_collection[name]) > 1
    labelled = [index for index, row in enumerate(rows) if row[3]]
    random.shuffle(labelled)
    alone = draw_folds([rows[index] for index in labelled], scheme, num_folds, seed)
    assert alone == [folds[index] for index in labelled]


def test_program_in_both_layout_searches_has_one_fold_and_tile_is_apart() -> None:
    rows = [(name, "graph", "architecture", True) for name in NAMES]
    frame = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    groups = assign_folds(frame, "architecture", 3, 0)["group"].to_list()
    sources = ("xla", "xla", "nlp", "nlp", "tile")
    assert groups == [f"{name}/architecture" for name in sources]


@given(st.lists(st.sampled_from("abcdefgh"), max_size=30), st.floats(0.01, 0.9), SEEDS)
def test_inner_split_takes_few_whole_groups(groups: list[str], share: float, seed: int) -> None:
    mask = split_inner(groups, share, seed)
    chosen = {group for group, inside in zip(groups, mask, strict=True) if inside}
    assert mask.tolist() == [group in chosen for group in groups]
    assert mask.sum() <= len(groups) / 2
    assert mask.any() == (len(set(groups)) >= 3)


def find(
    names: Sequence[str], architectures: Sequence[str], opcodes: Sequence[list[int]] | None = None
) -> list[str]:
    """Opcodes are asked for where a test gives them, and only there."""

    def read(row: int) -> np.ndarray:
        assert opcodes is not None, "opcodes of programs whose names say their family"
        return np.array(opcodes[row], np.uint8)

    return find_families(names, architectures, read)


@pytest.mark.parametrize(("name", "family"), [
    ("resnet_d6_b2_train", "resnet"), ("resnet50.4x4.bf16", "resnet"),
    ("resnet_v1_50_official_batch_128_bf16_-12ab34cd56ef7890", "resnet"),
    ("mlperf_bert_batch_24_2x2", "bert"),
    ("small_bert_bert_en_uncased_L-10_H-128_A-2_batch_size_16_test", "bert"),
    ("tf2_bert_pretrain_dynamic_batch_size", "bert"),
    ("talking-heads_large_batch_size_16_train", "talking"), ("transpose3_041", "transpose"),
    ("unet_3d.4x4.bf16", "unet"), ("unet3d", "unet"), ("0a838c085f8c1b476d5dc8bc0f737a40", ""),
    ("fusion.191", ""), ("program_3", ""), ("", ""),
])  # fmt: skip
def test_a_name_says_its_family(name: str, family: str) -> None:
    assert name_family(name) == family


@pytest.mark.parametrize(
    ("names", "architectures", "families"),
    [
        ("resnet_d6 vgg_s2 resnet_d8", "abc", "resnet vgg resnet"),
        ("matmul_1 bmm_2 pool_3", "aab", "bmm bmm pool"),
        ("gptneo_1 gpt_2 maskrcnn_3 mask_rcnn_4 gru_5", "abcde", "gpt gpt mask mask gru"),
    ],
    ids=["one word", "one structure", "one word begins with another"],
)
def test_programs_are_one_family(names: str, architectures: str, families: str) -> None:
    assert find(names.split(), list(architectures)) == families.split()


def test_a_hash_joins_the_programs_with_the_same_kinds_of_operations() -> None:
    names = ["resnet_d6", "0" * 32, "vgg_1", "f" * 32]
    opcodes = [[1, 2, 3], [3, 2, 1, 1], [7, 8], [40]]
    assert find(names, list("abcd"), opcodes) == ["resnet", "resnet", "vgg", "d"]


SOME_NAMES = ("resnet_1", "resnets_2", "vgg_1", "0" * 32, "fusion.1")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(SOME_NAMES), st.integers(0, 4)), max_size=12),
    st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=5, max_size=5),
)
def test_families_are_those_of_all_pairs_joined_one_by_one(
    drawn: list[tuple[str, int]], sets: list[set[int]]
) -> None:
    """Against a slow reference: every pair of graphs is compared, until nothing changes."""
    names = [name for name, _ in drawn]
    kinds = [kind for _, kind in drawn]
    found = find(names, [str(kind) for kind in kinds], [[*sets[kind]] for kind in kinds])

    def related(one: int, other: int) -> bool:
        if kinds[one] == kinds[other]:
            return True
        words = sorted(name_family(names[row]) for row in (one, other))
        if all(words):
            return words[1].startswith(words[0])
        left, right = sets[kinds[one]], sets[kinds[other]]
        return len(left & right) >= ALIKE * len(left | right)

    group, pairs = [*range(len(names))], [*product(range(len(names)), repeat=2)]
    for one, other in pairs * len(names):
        if related(one, other):
            group[one] = group[other] = min(group[one], group[other])
    for one, other in pairs:
        assert (found[one] == found[other]) == (group[one] == group[other])
