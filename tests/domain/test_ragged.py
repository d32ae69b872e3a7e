"""Rows of different lengths, against loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solution.domain.ragged import offsets, places_in, starts_of


@given(st.lists(st.integers(0, 4), max_size=8))
def test_places_are_those_of_a_loop(counts: list[int]) -> None:
    expected = [(row, place) for row, count in enumerate(counts) for place in range(count)]
    rows, inside = places_in(np.array(counts, np.int64))
    assert list(zip(rows.tolist(), inside.tolist(), strict=True)) == expected
    assert starts_of(counts).tolist() == [sum(counts[:k]) for k in range(len(counts) + 1)]
    assert offsets(counts).tolist() == [sum(counts[:k]) for k in range(len(counts))]
