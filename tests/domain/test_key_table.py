"""A hash table of integers against a dictionary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.codebook_encoder import KeyTable

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
    for block in blocks:
        assert_numbers(table, known, np.array(block, np.int64))


@given(st.lists(KEYS, min_size=1, max_size=30, unique=True))
@settings(max_examples=40, deadline=None)
def test_known_keys_are_found_and_nothing_is_added(keys: list[int]) -> None:
    table = KeyTable()
    first = table.number(np.array(keys))
    again = np.array(keys * 3)[::-1]
    np.testing.assert_array_equal(table.number(again), np.tile(first, 3)[::-1])
    assert len(table.keys) == len(keys)


def colliding(count: int, slot: int) -> np.ndarray:
    """Keys that all hash to one slot of a table of 2 ** 20, and so of every smaller one."""
    inverse = pow(int(KeyTable.MULTIPLIER), -1, 2**64)
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


def test_keys_that_collide_are_not_found_before_they_are_added() -> None:
    keys = colliding(40, 7)
    table = KeyTable()
    assert table.number(keys[::2]).max() == 19
    assert table.number(keys[1::2]).min() == 20
    np.testing.assert_array_equal(table.number(keys[::2]), table.number(keys)[::2])


def test_zero_is_a_key_like_any_other() -> None:
    table = KeyTable()
    assert table.number(np.array([0, 0])).tolist() == [0, 0]
    assert table.number(np.array([7, 0])).tolist() == [1, 0]


def test_many_keys_in_growing_tables() -> None:
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 7**18, 60_000)
    table, known = KeyTable(), dict[int, int]()
    for size in (1, 10, 255, 256, 257, 3000, 60_000):
        assert_numbers(table, known, keys[:size])
    np.testing.assert_array_equal(np.sort(table.keys), np.unique(keys))


def test_close_keys_are_told_apart() -> None:
    """Layouts that differ in the last slot are neighbours."""
    table, known = KeyTable(), dict[int, int]()
    for first in (0, 7**18 - 5000):
        assert_numbers(table, known, np.arange(first, first + 5000))
