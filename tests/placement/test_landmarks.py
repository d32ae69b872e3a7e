"""Where a node is, by its distances from landmarks."""

from collections import deque

import numpy as np
import pytest

from solution.placement.graphs.cost_graph import CostGraph, build_cost_graph
from solution.placement.graphs.landmarks import LANDMARKS, WAYS, find_distances
from solution.placement.graphs.recurrent import make_rnnlm
from tests.placement.made import make_columns, make_graph


def walk(graph: CostGraph, start: int, way: str) -> np.ndarray:
    """The slow and obvious one: a queue."""
    found, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for consumer, producer in graph.edges.tolist():
            steps = []
            if way in ("around", "along") and producer == node:
                steps.append(consumer)
            if way in ("around", "against") and consumer == node:
                steps.append(producer)
            for step in steps:
                if step not in found:
                    found[step] = found[node] + 1
                    queue.append(step)
    beyond = max(found.values()) + 1
    return np.array([found.get(node, beyond) for node in range(graph.num_nodes)])


@pytest.mark.parametrize("seed", range(4))
def test_distances_are_those_of_an_obvious_walk(seed: int) -> None:
    graph = make_graph(40, seed)
    columns, near = [], np.full(40, np.inf)
    landmark = max(range(40), key=lambda node: graph.resident_bytes[node])
    for _ in range(LANDMARKS):
        for way in ("around", "along", "against"):
            steps = walk(graph, landmark, way)
            columns.append(steps / steps.max())
        near = np.minimum(near, walk(graph, landmark, "around"))
        landmark = int(np.flatnonzero(near == near.max())[0])
    assert np.array_equal(find_distances(graph), np.stack(columns, axis=1))


def test_layers_of_an_unrolled_network_lie_apart() -> None:
    """Their cells look the same at every step of time; distances tell the layers, linearly."""
    graph = make_rnnlm(3, 6)
    cells = graph.decides_priority
    rows = np.column_stack([find_distances(graph)[cells], np.ones(cells.sum())])
    layers = graph.stages[cells]
    weights = np.linalg.lstsq(rows, np.eye(3)[layers], rcond=None)[0]
    assert ((rows @ weights).argmax(axis=1) == layers).mean() > 0.85


def test_a_graph_of_one_node_and_one_without_edges_have_distances() -> None:
    for count in (1, 3):
        graph = build_cost_graph("alone", make_columns(count, 0), np.empty((0, 2), np.int64))
        found = find_distances(graph)
        assert found.shape == (count, WAYS * LANDMARKS)
        assert np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()
