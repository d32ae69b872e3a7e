"""Copies and frequencies of layout configurations against slow counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.features.layout import copies, frequency
from solution.features.layout.conflicts import find_constraints
from solution.features.work import num_bytes
from tests.features.layout.test_tensors import random_graph
from tests.made.graphs import make_layout_graph

SEEDS = st.integers(0, 10_000)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_copies_are_counted_tensor_by_tensor(seed: int) -> None:
    graph = random_graph(seed)
    constraints = find_constraints(graph)
    found = copies.count_copies(graph)
    assert found.shape == (len(graph.layouts.codes), len(copies.FEATURES))
    described = constraints.describe(graph.layouts.codes)
    sizes = num_bytes(graph)[constraints.nodes]
    for config, tensors in enumerate(described):
        count = sum(int(order) for _, _, order in tensors)
        moved = sum(size * int(order) for size, (_, _, order) in zip(sizes, tensors, strict=True))
        row = dict(zip((f.name for f in copies.FEATURES), found[config], strict=True))
        assert row["copies_count"] == pytest.approx(np.log1p(count), abs=1e-5)
        assert row["copies_bytes"] == pytest.approx(np.log1p(moved), rel=1e-5)
        if len(sizes):
            assert row["copies_order"] == pytest.approx(count / len(sizes), abs=1e-6)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_frequencies_are_shares_of_all_candidates(seed: int) -> None:
    graph = random_graph(seed)
    layouts = graph.layouts.expand()  # (configs, nodes, 18)
    found = frequency.measure_frequency(graph.layouts)[graph.layouts.rows]
    for config, row in enumerate(found):
        same = (layouts == layouts[config]).all(axis=2)  # (configs, nodes)
        share = same.mean(axis=0)
        top = [
            max((layouts[:, n] == layouts[c, n]).all(axis=1).mean() for c in range(len(layouts)))
            for n in range(layouts.shape[1])
        ]
        expected = [share.mean(), np.log(share).mean(), share.min(), np.isclose(share, top).mean()]
        np.testing.assert_allclose(row, expected, rtol=1e-9)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_layout_graph(configs=30)
    whole = copies.count_copies(graph), frequency.measure_frequency(graph.layouts)
    monkeypatch.setattr(copies, "BLOCK_ENTRIES", 5)
    monkeypatch.setattr(frequency, "BLOCK_ENTRIES", 5)
    np.testing.assert_allclose(copies.count_copies(graph), whole[0])
    np.testing.assert_allclose(frequency.measure_frequency(graph.layouts), whole[1])
