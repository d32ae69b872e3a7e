"""Distinct layouts are stored once, and nothing is lost by it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from solution.features import codebook
from solution.features.codebook import build_codebook, pair_nodes_with_layouts
from tests.graphs import make_layout_graph


def tensors(min_nodes: int = 0) -> st.SearchStrategy[np.ndarray]:
    """Config tensors (configs, nodes, 18) of a few distinct values, so that rows repeat."""
    shapes = st.tuples(st.integers(1, 6), st.integers(min_nodes, 4), st.just(18))
    return shapes.flatmap(
        lambda shape: arrays.arrays(
            np.int8, shape, elements=st.integers(-1, 5), fill=st.sampled_from([-1, 5])
        )
    )


@given(tensors())
@settings(max_examples=60, deadline=None)
def test_expanding_gives_the_tensor_back(configs: np.ndarray) -> None:
    expanded = build_codebook(configs).expand()
    assert expanded.dtype == np.int8
    np.testing.assert_array_equal(expanded, configs)


@given(tensors())
@settings(max_examples=40, deadline=None)
def test_the_layouts_are_distinct_and_all_used(configs: np.ndarray) -> None:
    book = build_codebook(configs)
    assert {tuple(row) for row in book.layouts} == {tuple(row) for row in configs.reshape(-1, 18)}
    assert len({tuple(row) for row in book.layouts}) == len(book.layouts)


@given(tensors(min_nodes=1))
@settings(max_examples=40, deadline=None)
def test_the_pairs_are_complete_and_distinct(configs: np.ndarray) -> None:
    pairs = pair_nodes_with_layouts(build_codebook(configs))
    listed = [(node, tuple(layout)) for node, layout in zip(pairs.node, pairs.layouts, strict=True)]
    expected = {(node, tuple(layout)) for row in configs for node, layout in enumerate(row)}
    assert len(listed) == len(set(listed))
    assert set(listed) == expected


@given(tensors(min_nodes=1))
@settings(max_examples=40, deadline=None)
def test_every_configuration_points_at_its_own_pairs(configs: np.ndarray) -> None:
    pairs = pair_nodes_with_layouts(build_codebook(configs))
    assert pairs.index.dtype == np.int32
    np.testing.assert_array_equal(pairs.layouts[pairs.index], configs)
    nodes = np.broadcast_to(np.arange(configs.shape[1]), pairs.index.shape)
    np.testing.assert_array_equal(pairs.node[pairs.index], nodes)


def test_no_configurable_nodes_give_empty_tables() -> None:
    book = build_codebook(np.empty((3, 0, 18), np.int8))
    pairs = pair_nodes_with_layouts(book)
    assert book.expand().shape == (3, 0, 18)
    assert pairs.index.shape == (3, 0)
    assert len(pairs.node) == len(pairs.layouts) == 0


def test_the_extremes_survive_the_packing() -> None:
    configs = np.stack([np.full((1, 18), 5, np.int8), np.full((1, 18), -1, np.int8)])
    np.testing.assert_array_equal(build_codebook(configs).expand(), configs)


@pytest.mark.parametrize(("distinct", "expected"), [(300, np.uint16), (70_000, np.uint32)])
def test_the_index_is_as_narrow_as_the_number_of_layouts_allows(
    distinct: int, expected: type[np.unsignedinteger]
) -> None:
    digits = np.arange(distinct)[:, None] // 7 ** np.arange(18)[None, :] % 7
    configs = (digits - 1).astype(np.int8)[:, None, :]
    book = build_codebook(configs)
    assert book.index.dtype == expected
    assert len(book.layouts) == distinct
    np.testing.assert_array_equal(book.expand(), configs)


@pytest.mark.parametrize("entries", [1, 7, 1000])
def test_block_size_changes_nothing(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = make_layout_graph(configs=50).configs
    whole = build_codebook(configs)
    monkeypatch.setattr(codebook, "BLOCK_ENTRIES", entries)
    blocked = build_codebook(configs)
    np.testing.assert_array_equal(blocked.layouts, whole.layouts)
    np.testing.assert_array_equal(blocked.index, whole.index)
