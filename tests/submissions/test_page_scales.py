"""Axes of the report's pictures."""

import pytest

from submissions.page.canvas import Scale, spanning


@pytest.mark.parametrize(
    "values", [[0.0], [0.5, 0.5], [-3e-9, 1e-9], [1.0, 1e6], [], [float("nan")]]
)
def test_axes_hold_their_values_and_have_few_round_ticks(values: list[float]) -> None:
    scale = spanning(values)
    assert 1 <= len(scale.ticks()) <= 8
    assert all(scale.start <= scale(value) <= scale.end for value in values if value == value)


@pytest.mark.parametrize("high", [1.01, 1.5, 3.9, 30.0, 5e5])
def test_logarithmic_axes_have_few_round_ticks(high: float) -> None:
    scale = Scale(1.0, high, logarithmic=True)
    assert 2 <= len(scale.ticks()) <= 9
    assert scale(1.0) == scale.start and scale(high) == pytest.approx(scale.end)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_an_axis_of_one_value_has_one_tick_in_its_middle(logarithmic: bool) -> None:
    """A quick look's curves have a single step."""
    scale = Scale(3, 3, 0.0, 10.0, logarithmic)
    assert [(value, value.is_integer()) for value in scale.ticks()] == [(3.0, True)]
    assert scale(3.0) == 5.0
