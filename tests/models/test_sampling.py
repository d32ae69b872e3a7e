"""Which configurations a ranker learns from, and the labels that it is given."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solution.models.labels import relevance
from solution.models.sampling import choose_rows
from tests.made.graphs import make_layout_graph


def test_unlabelled_graph_cannot_be_learned_from() -> None:
    graph = make_layout_graph(labelled=False)
    with pytest.raises(ValueError, match="no labels"):
        choose_rows(graph, limit=10, seed=0)


def test_training_rows_are_distinct_and_average_the_labels() -> None:
    graph = make_layout_graph(configs=4).select(np.array([0, 1, 0, 2]))
    graph = dataclasses.replace(graph, runtimes=np.array([1.0, 2.0, 3.0, 4.0]))
    rows = choose_rows(graph, limit=10, seed=0)
    distinct = np.unique(graph.layouts.expand().reshape(4, -1), axis=0)
    assert len(rows.graph.distinct.first) == len(rows.runtimes) == len(distinct)
    assert rows.runtimes.tolist() == [2.0, 2.0, 4.0][: len(distinct)]


@given(st.integers(1, 9), st.integers(0, 100))
def test_rows_that_are_drawn_keep_all_their_copies(limit: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(0, 12, 40)
    graph = make_layout_graph().select(drawn)
    rows = choose_rows(graph, limit, seed)
    few = rows.graph.distinct
    assert len(few.first) == len(rows.runtimes) == min(limit, len(graph.distinct.first))
    assert rows.graph.runtimes is not None
    np.testing.assert_allclose(few.mean(rows.graph.runtimes), rows.runtimes)
    whole = [config.tobytes() for config in graph.layouts.expand()]
    kept = [config.tobytes() for config in rows.graph.layouts.expand()]
    assert all(kept.count(config) == whole.count(config) for config in kept)


def test_relevance_rises_with_speed_and_ties_share_theirs() -> None:
    found = relevance(np.array([10.0, 30.0, 20.0, 20.0]), levels=5)
    assert found.tolist() == [4, 0, 2, 2]
