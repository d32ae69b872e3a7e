"""Distinct layouts are stored once, and nothing is lost by it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from solution.domain import codebook_encoder
from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import LayoutEncoder, LayoutValueError, encode
from tests.made.graphs import make_layout_graph

NOT_LAYOUTS = [-2, 6, 0.5, 4.999, 256, -1e9, 2.0**40, np.nan, np.inf, -np.inf]


def tensors(min_nodes: int = 0, max_configs: int = 6) -> st.SearchStrategy[np.ndarray]:
    """Config tensors (configs, nodes, 18) of a few distinct values, so that rows repeat."""
    shapes = st.tuples(st.integers(1, max_configs), st.integers(min_nodes, 4), st.just(18))
    return shapes.flatmap(
        lambda shape: arrays.arrays(
            np.int8, shape, elements=st.integers(-1, 5), fill=st.sampled_from([-1, 5])
        )
    )


def count_up(distinct: int) -> np.ndarray:
    """A tensor (distinct, 1, 18) in which every configuration is another one."""
    digits = np.arange(distinct)[:, None] // 7 ** np.arange(18)[None, :] % 7
    return (digits - 1).astype(np.int8)[:, None, :]


def assert_same(left: Codebook, right: Codebook) -> None:
    for name, array in left.arrays().items():
        other = right.arrays()[name]
        assert array.dtype == other.dtype, name
        np.testing.assert_array_equal(array, other, name)


def encode_in_blocks(configs: np.ndarray, borders: list[int]) -> Codebook:
    encoder = LayoutEncoder(*configs.shape[:2])
    for first, last in pairwise([0, *sorted(borders), len(configs)]):
        encoder.add(configs[first:last])
    return encoder.finish()


@given(tensors(), st.sampled_from([np.int8, np.int64, np.float16, np.float32, np.float64]))
@settings(max_examples=80, deadline=None)
def test_expanding_gives_the_tensor_back(configs: np.ndarray, dtype: type) -> None:
    book = encode(configs.astype(dtype))
    expanded = book.expand()
    assert expanded.dtype == np.int8
    assert book.shape == configs.shape
    np.testing.assert_array_equal(expanded, configs)


@given(tensors(min_nodes=1))
@settings(max_examples=60, deadline=None)
def test_every_node_has_its_own_layouts_once_and_all_are_used(configs: np.ndarray) -> None:
    book = encode(configs)
    listed = [(node, tuple(layout)) for node, layout in zip(book.node, book.layouts, strict=True)]
    expected = {(node, tuple(layout)) for row in configs for node, layout in enumerate(row)}
    assert len(listed) == len(set(listed))
    assert set(listed) == expected
    assert len(book.starts) == configs.shape[1] + 1
    for node, (first, last) in enumerate(pairwise(book.starts)):
        assert (book.node[first:last] == node).all()


@given(tensors(min_nodes=1))
@settings(max_examples=40, deadline=None)
def test_every_configuration_points_at_its_own_pairs(configs: np.ndarray) -> None:
    book = encode(configs)
    pairs = book.pairs(book.rows)
    assert pairs.dtype == np.int64
    np.testing.assert_array_equal(book.layouts[pairs], configs)
    np.testing.assert_array_equal(
        book.node[pairs], np.broadcast_to(np.arange(configs.shape[1]), pairs.shape)
    )
    np.testing.assert_array_equal(book.pairs(slice(None))[book.rows], pairs)


@given(tensors(), st.lists(st.integers(0, 6), max_size=4))
@settings(max_examples=80, deadline=None)
def test_blocks_of_any_size_give_the_identical_codebook(
    configs: np.ndarray, borders: list[int]
) -> None:
    whole = encode_in_blocks(configs, [])
    assert_same(encode_in_blocks(configs, [min(b, len(configs)) for b in borders]), whole)
    assert_same(encode(configs), whole)


@pytest.mark.parametrize("entries", [1, 7, 1000])
def test_size_of_the_working_blocks_changes_nothing(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = make_layout_graph(configs=50).layouts.expand()
    whole = encode(configs)
    monkeypatch.setattr(codebook_encoder, "BLOCK_ENTRIES", entries)
    assert_same(encode(configs), whole)


@given(tensors(), st.data())
@settings(max_examples=40, deadline=None)
def test_order_of_the_configurations_changes_no_layout(
    configs: np.ndarray, data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(configs)))))
    book, permuted = encode(configs), encode(configs[order])
    np.testing.assert_array_equal(permuted.layouts, book.layouts)
    np.testing.assert_array_equal(permuted.starts, book.starts)
    np.testing.assert_array_equal(permuted.pairs(permuted.rows), book.pairs(book.rows)[order])


@given(tensors(max_configs=4), st.lists(st.integers(0, 3), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_identical_configurations_share_a_row_of_codes(
    configs: np.ndarray, repeats: list[int]
) -> None:
    chosen = np.array(repeats) % len(configs)
    book = encode(configs[chosen])
    seen: dict[bytes, int] = {}
    expected = [seen.setdefault(row.tobytes(), len(seen)) for row in configs[chosen]]
    assert book.rows.tolist() == expected  # in the order in which they appear
    assert len(book.codes) == len(seen)
    assert book.distinct.inverse.tolist() == expected
    assert book.distinct.first.tolist() == [expected.index(row) for row in range(len(seen))]


@pytest.mark.parametrize(
    ("distinct", "expected"),
    [(1, "u1"), (256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "u4"), (70_000, "u4")],
)
def test_the_codes_are_as_narrow_as_the_number_of_layouts_allows(
    distinct: int, expected: str
) -> None:
    configs = count_up(distinct)
    book = encode(configs)
    assert book.codes.dtype == expected
    assert len(book.layouts) == distinct
    np.testing.assert_array_equal(book.expand(), configs)


def test_many_layouts_of_many_nodes_have_short_codes() -> None:
    """Codes count the layouts of one node, not all 70,000."""
    configs = count_up(70_000).reshape(1000, 70, 18)
    for book in (encode(configs), encode_in_blocks(configs, [1, 400, 936, 937, 999])):
        assert book.codes.dtype == np.uint16
        assert len(book.layouts) == 70_000
        np.testing.assert_array_equal(book.expand(), configs)


def test_the_extremes_survive_the_packing() -> None:
    configs = np.stack([np.full((1, 18), 5, np.int8), np.full((1, 18), -1, np.int8)])
    np.testing.assert_array_equal(encode(configs).expand(), configs)


def test_every_slot_tells_layouts_apart() -> None:
    configs = np.concatenate([np.full((1, 1, 18), -1), np.full((1, 1, 18), 5)]).repeat(19, axis=0)
    for slot in range(18):
        configs[[slot, 19 + slot], 0, slot] = 2
    assert len(encode(configs).layouts) == 38
    np.testing.assert_array_equal(encode(configs).expand(), configs)


@pytest.mark.parametrize("configs", [0, 1, 3])
def test_no_configurable_nodes_give_empty_tables(configs: int) -> None:
    book = encode(np.empty((configs, 0, 18), np.int8))
    assert book.expand().shape == (configs, 0, 18)
    assert book.pairs(book.rows).shape == (configs, 0)
    assert len(book.node) == len(book.layouts) == 0
    assert book.starts.tolist() == [0]
    assert len(book.codes) == min(configs, 1)  # they are all the same


def test_no_configurations_give_no_layouts() -> None:
    book = encode(np.empty((0, 3, 18), np.float32))
    assert book.expand().shape == (0, 3, 18)
    assert len(book.layouts) == 0


@given(tensors(), st.lists(st.integers(0, 5), max_size=9))
@settings(max_examples=80, deadline=None)
def test_selecting_takes_configurations_in_any_order_and_number(
    configs: np.ndarray, positions: list[int]
) -> None:
    chosen = np.array([position % len(configs) for position in positions], np.int64)
    book = encode(configs)
    part = book.select(chosen)
    np.testing.assert_array_equal(part.expand(), configs[chosen])
    assert part.layouts is book.layouts
    assert part.starts is book.starts
    assert len(part.codes) == len({row.tobytes() for row in configs[chosen]})
    twice = part.select(np.arange(len(chosen))[::-1])
    np.testing.assert_array_equal(twice.expand(), configs[chosen[::-1]])


def test_selecting_every_distinct_configuration_copies_no_codes() -> None:
    book = encode(np.tile(count_up(20), (3, 2, 1)))
    assert book.select(np.arange(60)).codes is book.codes
    assert book.select(np.arange(39, -1, -1)).codes is book.codes
    assert book.select(np.arange(19)).codes is not book.codes


@given(tensors(min_nodes=1), st.sampled_from(NOT_LAYOUTS), st.data())
@settings(max_examples=80, deadline=None)
def test_a_wrong_value_is_named_with_its_place_whatever_the_block(
    configs: np.ndarray, value: float, data: st.DataObject
) -> None:
    place = tuple(data.draw(st.integers(0, size - 1)) for size in configs.shape)
    border = data.draw(st.integers(0, len(configs)))
    wrong = configs.astype(np.float64)
    wrong[place] = value
    for make in (encode, lambda tensor: encode_in_blocks(tensor, [border])):
        with pytest.raises(LayoutValueError) as caught:
            make(wrong)
        assert caught.value.index == place
        np.testing.assert_equal(caught.value.value, value)


def test_the_first_of_several_wrong_values_is_named() -> None:
    wrong = np.zeros((4, 3, 18), np.float32)
    wrong[2, 1, 7], wrong[2, 1, 9], wrong[3, 0, 0] = np.nan, 6, -5
    with pytest.raises(LayoutValueError, match=r"\(2, 1, 7\) is nan"):
        encode(wrong)


def test_wrong_integers_are_refused_too() -> None:
    for dtype, value in ((np.uint8, 255), (np.int64, 2**40), (np.int8, -2)):
        wrong = np.zeros((2, 1, 18), dtype)
        wrong[1, 0, 17] = value
        with pytest.raises(LayoutValueError):
            encode(wrong)


def test_arrays_cannot_be_changed() -> None:
    for array in encode(count_up(5)).arrays().values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
