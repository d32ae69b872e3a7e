"""Distinct layouts are stored once, nothing is lost by it; which configurations are chosen."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from solution.domain.codebook import (
    GOLDEN,
    Codebook,
    KeyTable,
    LayoutEncoder,
    LayoutValueError,
    deduplicate,
    encode,
    mix,
)
from solution.domain.dividing import choose_configs

NOT_LAYOUTS = [-2, 6, 0.5, 4.999, 256, -1e9, 2.0**40, np.nan, np.inf, -np.inf]


def tensors(min_nodes: int = 0, max_configs: int = 6) -> st.SearchStrategy[np.ndarray]:
    """Config tensors (configs, nodes, 18) of a few distinct values, so that rows repeat."""
    shapes = st.tuples(st.integers(1, max_configs), st.integers(min_nodes, 4), st.just(18))
    return shapes.flatmap(
        lambda shape: arrays.arrays(
            np.int8, shape, elements=st.integers(-1, 5), fill=st.sampled_from([-1, 5])
        )
    )


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
def test_expanding_gives_back_the_tensor_and_its_pairs(configs: np.ndarray, dtype: type) -> None:
    book = encode(configs.astype(dtype))
    expanded, pairs = book.expand(), book.pairs(book.rows)
    assert (expanded.dtype, pairs.dtype) == (np.int8, np.int64)
    assert book.shape == configs.shape
    np.testing.assert_array_equal(expanded, configs)
    np.testing.assert_array_equal(book.layouts[pairs], configs)
    nodes = np.broadcast_to(np.arange(configs.shape[1]), pairs.shape)
    np.testing.assert_array_equal(book.node[pairs], nodes)
    np.testing.assert_array_equal(book.pairs(slice(None))[book.rows], pairs)


@given(tensors(), st.lists(st.integers(0, 6), max_size=4))
@settings(max_examples=80, deadline=None)
def test_blocks_of_any_size_give_the_same_codebook(configs: np.ndarray, borders: list[int]) -> None:
    whole = encode_in_blocks(configs, [])
    assert_same(encode_in_blocks(configs, [min(b, len(configs)) for b in borders]), whole)
    assert_same(encode(configs), whole)


@given(tensors(max_configs=4), st.lists(st.integers(0, 3), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_equal_configurations_share_a_row_of_codes(configs: np.ndarray, repeats: list[int]) -> None:
    chosen = np.array(repeats) % len(configs)
    book = encode(configs[chosen])
    seen: dict[bytes, int] = {}
    expected = [seen.setdefault(row.tobytes(), len(seen)) for row in configs[chosen]]
    assert book.rows.tolist() == expected  # in the order in which they appear
    assert len(book.codes) == len(seen)
    assert book.distinct.inverse.tolist() == expected
    assert book.distinct.first.tolist() == [expected.index(row) for row in range(len(seen))]


@pytest.mark.parametrize("configs", [0, 1, 3])
def test_no_configurable_nodes_give_empty_tables(configs: int) -> None:
    book = encode(np.empty((configs, 0, 18), np.int8))
    assert book.expand().shape == (configs, 0, 18)
    assert book.pairs(book.rows).shape == (configs, 0)
    assert len(book.node) == len(book.layouts) == 0
    assert book.starts.tolist() == [0]
    assert len(book.codes) == min(configs, 1)  # they are all the same


@given(tensors(), st.lists(st.integers(0, 5), max_size=9))
@settings(max_examples=80, deadline=None)
def test_selecting_takes_any_order_and_number(configs: np.ndarray, positions: list[int]) -> None:
    chosen = np.array([position % len(configs) for position in positions], np.int64)
    book = encode(configs)
    part = book.select(chosen)
    np.testing.assert_array_equal(part.expand(), configs[chosen])
    assert part.layouts is book.layouts
    assert part.starts is book.starts
    assert len(part.codes) == len({row.tobytes() for row in configs[chosen]})
    twice = part.select(np.arange(len(chosen))[::-1])
    np.testing.assert_array_equal(twice.expand(), configs[chosen[::-1]])


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


KEYS = st.integers(0, 7**18 - 1)


def assert_numbers(table: KeyTable, known: dict[int, int], keys: np.ndarray) -> None:
    """Equal keys have equal numbers, now and later; they count from 0 without a gap."""
    numbers = table.number(keys)
    for key, number in zip(keys.tolist(), numbers.tolist(), strict=True):
        assert known.setdefault(key, number) == number
    assert sorted(known.values()) == list(range(len(known)))
    assert len(table.keys) == len(known)
    assert all(table.keys[number] == key for key, number in known.items())


@given(st.lists(st.lists(KEYS, max_size=20), max_size=6))
@settings(max_examples=80, deadline=None)
def test_numbers_equal_those_of_a_dictionary(blocks: list[list[int]]) -> None:
    table, known = KeyTable(), dict[int, int]()
    for block in [*blocks, sum(blocks, [])[::-1]]:  # the last one has no new key
        assert_numbers(table, known, np.array(block, np.int64))


def colliding(count: int, slot: int) -> np.ndarray:
    """Keys that all hash to one slot of a table of 2 ** 20, and so of every smaller one."""
    inverse = pow(int(GOLDEN), -1, 2**64)
    products = [(slot << 44) + position for position in range(count)]
    keys = [product * inverse % 2**64 for product in products]
    return np.array(keys, np.uint64).view(np.int64)


@pytest.mark.parametrize("slot", [0, 5, 2**20 - 1])  # from the last slot on it goes round
@pytest.mark.parametrize("blocks", [1, 4])
def test_keys_that_collide_are_told_apart(slot: int, blocks: int) -> None:
    keys = colliding(400, slot)
    table, known = KeyTable(), dict[int, int]()
    assert len(np.unique(table._slots(keys))) == 1
    for block in np.split(keys, blocks):
        assert_numbers(table, known, block)
    assert_numbers(table, known, np.random.default_rng(0).permutation(keys))


def test_the_numbers_of_splitmix64_from_seed_0() -> None:
    drawn = [int(mix(np.zeros(1, np.uint64), number)[0]) for number in (1, 2)]
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


keys = st.tuples(st.sampled_from(["layout:nlp:random", "tile:xla"]), st.text(max_size=8))

layouts = arrays.arrays(
    np.int8,
    st.tuples(st.integers(1, 30), st.integers(0, 2), st.just(2)),
    elements=st.integers(0, 1),
)
tiles = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 30), st.just(3)), elements=st.sampled_from([0.0, 1.0, 2.5])
)


@given(keys, st.integers(0, 60), st.integers(0, 40))
def test_small_graphs_are_chosen_whole(key: tuple[str, str], num_configs: int, more: int) -> None:
    assert choose_configs(key, num_configs, num_configs + more).tolist() == list(range(num_configs))


def test_choice_is_the_one_that_saved_predictions_were_made_for() -> None:
    key = ("layout:xla:random", "unet")
    assert choose_configs(key, 100_000, 5).tolist() == [1729, 21886, 33326, 41922, 44252]
    assert choose_configs(key, 5000).sum() == 2_447_924


@settings(deadline=None)
@given(st.one_of(layouts, tiles))
def test_distinct_rows_are_those_of_numpy_in_order_of_appearance(configs: np.ndarray) -> None:
    found = deduplicate(configs)
    flat = configs.reshape(len(configs), -1)
    expected = len(np.unique(flat, axis=0)) if flat.shape[1] else 1
    assert len(found.first) == expected
    assert np.array_equal(configs[found.first][found.inverse], configs)
    rows = flat.tolist()
    assert found.first.tolist() == [i for i, row in enumerate(rows) if row not in rows[:i]]


@settings(deadline=None)
@given(layouts, st.integers(0, 100))
def test_mean_is_the_average_over_identical_configurations(configs: np.ndarray, seed: int) -> None:
    found = deduplicate(configs)
    values = np.random.default_rng(seed).normal(size=len(configs)) * 1e6
    rows = configs.reshape(len(configs), -1)
    expected = [np.mean(values[(rows == rows[first]).all(axis=1)]) for first in found.first]
    assert found.mean(values) == pytest.approx(expected)
