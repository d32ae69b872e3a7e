"""Columns of propagated copies, against sums one after the other."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.copied_columns import FEATURES, propagated_rows
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.features.propagation.instructions import ASKS
from solution.features.propagation.propagation import Propagation
from solution.features.work import num_bytes
from tests.features.propagation.drawn import draw_graph

NAMES = [feature.name for feature in FEATURES]


def with_nothing_asked(graph: Graph) -> Graph:
    """The same program, whose last configuration asks for nothing."""
    layouts = graph.layouts.expand().copy()
    layouts[-1] = -1
    return dataclasses.replace(graph, configs=encode(layouts))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_a_row_is_the_same_beside_other_configurations(seed: int) -> None:
    graph = draw_graph(seed)
    rows = propagated_rows(graph)[graph.layouts.rows]
    alone = [propagated_rows(graph.select(np.array([k])))[0] for k in range(graph.num_configs)]
    np.testing.assert_allclose(rows, np.stack(alone), rtol=1e-5, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_columns_are_what_a_configuration_adds(seed: int) -> None:
    graph = with_nothing_asked(draw_graph(seed))
    rows = propagated_rows(graph)[graph.layouts.rows]
    np.testing.assert_allclose(rows[-1], 0, atol=1e-12)  # differences of sums
    propagation = Propagation(graph)
    own, size = propagation.instructions, num_bytes(graph)
    inlined = [node for node, kind in zip(own.node, own.kind, strict=True) if kind != ASKS]
    total = sum(size[node] for node in inlined if node >= 0)
    moved = []
    for marks in propagation.assign().copies[graph.layouts.rows]:
        nodes = propagation.copied[marks > 0]
        moved.append(sum(size[node] for node in nodes if node >= 0) / total)
    added = rows[:, NAMES.index("propagated_bytes")]
    np.testing.assert_allclose(added, np.array(moved) - moved[-1], rtol=1e-5, atol=1e-6)
    for parts in (NAMES[2:5], NAMES[5:8], NAMES[11:17]):
        together = rows[:, [NAMES.index(name) for name in parts]].sum(axis=1)
        np.testing.assert_allclose(together, added, rtol=1e-4, atol=1e-5)
