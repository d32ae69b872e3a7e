"""Node features for the nets: logarithms, derived columns, standardisation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.features.nodes import NUM_NUMERIC, Scaler, compress, fit_scaler, numeric_features
from solution.features.padding import repair_padding
from tests.made.graphs import make_layout_graph, make_tile_graph


def test_compress_by_hand() -> None:
    values = np.array([0.0, 1.0, -1.0, math.e - 1, 1 - math.e, 3e8])
    expected = [0, math.log(2), -math.log(2), 1, -1, math.log(3e8 + 1)]
    assert compress(values).tolist() == pytest.approx(expected)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20))
@settings(max_examples=40, deadline=None)
def test_compress_is_odd_and_keeps_the_order(numbers: list[float]) -> None:
    values = np.sort(np.array(numbers))
    np.testing.assert_array_equal(compress(-values), -compress(values))
    assert (np.diff(compress(values)) >= 0).all()


def make_tables(seed: int) -> list[np.ndarray]:
    """A few tables of different lengths with columns of different scales."""
    generator = np.random.default_rng(seed)
    scales = np.array([1e-3, 1.0, 50.0, 1e4])
    lengths = generator.integers(1, 60, 4)
    return [
        (scales * (generator.normal(size=(rows, 4)) + 2)).astype(np.float32) for rows in lengths
    ]


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_scaler_equals_mean_and_deviation_of_all_rows(seed: int) -> None:
    tables = make_tables(seed)
    rows = np.concatenate(tables).astype(np.float64)
    scaler = fit_scaler(tables)
    np.testing.assert_allclose(scaler.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scaler.scale, 1 / rows.std(axis=0), rtol=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_scaled_rows_have_mean_0_and_deviation_1(seed: int) -> None:
    tables = make_tables(seed)
    rows = np.concatenate(tables)
    scaled = fit_scaler(tables)(rows)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-4)


def test_how_the_rows_are_cut_into_tables_does_not_matter() -> None:
    rows = np.concatenate(make_tables(0))
    whole, single = fit_scaler([rows]), fit_scaler(row[None] for row in rows)
    np.testing.assert_allclose(single.mean, whole.mean, rtol=1e-6)
    np.testing.assert_allclose(single.scale, whole.scale, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -7.3, 20.0, 1e6])
def test_a_constant_column_becomes_0_even_where_other_rows_differ(value: float) -> None:
    scaler = fit_scaler([np.full((37, 1), value, np.float32) for _ in range(50)])
    assert scaler(np.array([[value], [value + 3], [-1e6]], np.float32)).tolist() == [[0], [0], [0]]


def test_a_column_that_varies_between_tables_only_is_not_constant() -> None:
    scaler = fit_scaler([np.zeros((5, 1)), np.ones((5, 1))])
    assert scaler(np.array([[0.0], [1.0]])).tolist() == [[-1], [1]]


def test_a_rarely_set_flag_is_not_constant() -> None:
    flags = np.zeros((100_000, 1), np.float32)
    flags[0] = 1
    assert fit_scaler([flags]).scale[0] == pytest.approx(1 / flags.astype(float).std(), rel=1e-4)


def test_a_scaler_is_its_two_arrays() -> None:
    scaler = Scaler(np.array([1, 2], np.float32), np.array([2, 0], np.float32))
    assert scaler(np.array([[3, 5]], np.float32)).tolist() == [[4, 0]]


def test_derived_columns_by_hand() -> None:
    """x -> dot(x, w) -> add -> reshape -> tanh -> reshape; dot and reshapes are configurable."""
    graph = repair_padding(make_layout_graph())
    rows, inner = graph.node_features[0, 21:23]
    columns = graph.node_features[1, 22]
    features = numeric_features(graph)
    assert features.shape == (8, NUM_NUMERIC)
    assert features.dtype == np.float32
    derived = np.expm1(features[:, 140:])
    np.testing.assert_allclose(derived[:, 0], [2, 2, 2, 2, 2, 3, 3, 1], rtol=1e-5)
    elements = [rows * inner, inner * columns, *[rows * columns] * 6]
    np.testing.assert_allclose(derived[:, 1], np.multiply(elements, 4), rtol=1e-4)
    operations = [*elements[:2], rows * inner * columns, *elements[3:]]
    np.testing.assert_allclose(derived[:, 2], operations, rtol=1e-4)
    np.testing.assert_allclose(derived[:, 3], [0, 0, 2, 0, 2, 1, 1, 1], atol=1e-6)
    np.testing.assert_allclose(derived[:, 4], [1, 1, 1, 1, 1, 1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(derived[:, 5], [0, 0, 1, 0, 0, 1, 0, 1], atol=1e-6)


def test_the_columns_of_the_file_are_compressed_one_by_one() -> None:
    graph = repair_padding(make_tile_graph())
    expected = compress(graph.node_features).astype(np.float32)
    np.testing.assert_allclose(numeric_features(graph)[:, :140], expected, rtol=1e-6)
