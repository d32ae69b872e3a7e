"""Rounding is forgiven, wrong numbers are not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.collecting.comparison import find_deviation

RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.standard_normal((40, 30)).astype(np.float32)


def test_another_order_of_sums_is_no_deviation() -> None:
    left, right = RANDOM.standard_normal((2, 300, 300)).astype(np.float32)
    assert find_deviation([left[:, ::-1] @ right[::-1]], [left @ right]) == ""


@given(st.integers(0, NUMBERS.size - 1), st.sampled_from([0.0, 1.0, np.nan, np.inf]))
@settings(deadline=None)
def test_one_wrong_number_is_found(place: int, value: float) -> None:
    wrong = NUMBERS.copy()
    wrong.ravel()[place] = value + 3
    assert "1 of 1,200 numbers are wrong" in find_deviation([wrong], [NUMBERS])


def test_a_number_that_is_none_must_be_none_in_both() -> None:
    with_gaps = NUMBERS.copy()
    with_gaps[3, 4], with_gaps[5, 6] = np.nan, np.inf
    assert find_deviation([with_gaps], [with_gaps]) == ""
    assert "1 of" in find_deviation([np.where(np.isnan(with_gaps), 0, with_gaps)], [with_gaps])


@pytest.mark.parametrize("dtype", [bool, np.int32, np.uint8])
def test_whole_numbers_are_exact(dtype: type) -> None:
    numbers = np.arange(6).astype(dtype)
    other = numbers.copy()
    other[1] = 0
    assert find_deviation([numbers], [numbers]) == ""
    assert find_deviation([other], [numbers]) != ""


def test_shapes_types_and_counts_must_agree() -> None:
    assert "expected 2" in find_deviation([NUMBERS], [NUMBERS, NUMBERS])
    assert "float64" in find_deviation([NUMBERS.astype(np.float64)], [NUMBERS])
    assert "(30, 40)" in find_deviation([NUMBERS.T], [NUMBERS])


def test_coarse_types_may_round_more_coarsely() -> None:
    half = NUMBERS.astype(np.float16)
    assert find_deviation([np.nextafter(half, np.float16(9))], [half]) == ""
