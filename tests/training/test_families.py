"""Relatives are one family: by name, by structure, and by operations where a name says nothing."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.training.families import ALIKE, find_families, name_family


def find(
    names: Sequence[str], architectures: Sequence[str], opcodes: Sequence[list[int]] | None = None
) -> list[str]:
    """Opcodes are asked for where a test gives them, and only there."""

    def read(row: int) -> np.ndarray:
        assert opcodes is not None, "opcodes of programs whose names say their family"
        return np.array(opcodes[row], np.uint8)

    return find_families(names, architectures, read)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet_d6_b2_train", "resnet"),
        ("resnet50.4x4.bf16", "resnet"),
        ("resnet_v1_50_official_batch_128_bf16_-12ab34cd56ef7890", "resnet"),
        ("mlperf_bert_batch_24_2x2", "bert"),
        ("small_bert_bert_en_uncased_L-10_H-128_A-2_batch_size_16_test", "bert"),
        ("tf2_bert_pretrain_dynamic_batch_size", "bert"),
        ("talking-heads_large_batch_size_16_train", "talking"),
        ("transpose3_041", "transpose"),
        ("unet_3d.4x4.bf16", "unet"),
        ("unet3d", "unet"),
        ("0a838c085f8c1b476d5dc8bc0f737a40", ""),
        ("fusion.191", ""),
        ("program_3", ""),
        ("", ""),
    ],
)
def test_a_name_says_its_family(name: str, family: str) -> None:
    assert name_family(name) == family


def test_relatives_of_different_structure_are_one_family() -> None:
    assert find(["resnet_d6", "vgg_s2", "resnet_d8"], ["a", "b", "c"]) == [
        "resnet",
        "vgg",
        "resnet",
    ]


def test_programs_of_one_structure_are_one_family_whatever_their_names() -> None:
    assert find(["matmul_1", "bmm_2", "pool_3"], ["a", "a", "b"]) == ["bmm", "bmm", "pool"]


def test_a_word_that_begins_with_another_is_of_its_family() -> None:
    names = ["gptneo_1", "gpt_2", "maskrcnn_3", "mask_rcnn_4", "gru_5"]
    assert find(names, list("abcde")) == ["gpt", "gpt", "mask", "mask", "gru"]


def test_a_hash_joins_the_programs_with_the_same_kinds_of_operations() -> None:
    names = ["resnet_d6", "0" * 32, "vgg_1", "f" * 32]
    opcodes = [[1, 2, 3], [3, 2, 1, 1], [7, 8], [40]]
    assert find(names, list("abcd"), opcodes) == ["resnet", "resnet", "vgg", "d"]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["resnet_1", "resnets_2", "vgg_1", "0" * 32, "fusion.1"]),
            st.integers(0, 4),
        ),
        max_size=12,
    ),
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

    group = [*range(len(names))]
    for _ in names:
        for one in range(len(names)):
            for other in range(len(names)):
                if related(one, other):
                    group[one] = group[other] = min(group[one], group[other])
    for one in range(len(names)):
        for other in range(len(names)):
            assert (found[one] == found[other]) == (group[one] == group[other])
