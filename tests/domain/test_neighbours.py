"""Neighbours and depths, against loops over the edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solution.domain.neighbours import Neighbours, find_depths


@st.composite
def drawn_edges(draw: st.DrawFn, *, cycles: bool = False) -> tuple[np.ndarray, int]:
    """Rows [consumer, producer] in any order, some of them twice, and how many nodes there are."""
    count = draw(st.integers(1, 9))
    node = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=20))
    names = draw(st.permutations(range(count)))
    kept = [(names[max(p)], names[min(p)]) for p in pairs if p[0] != p[1]]
    if cycles:
        kept += [(consumer, producer) for producer, consumer in kept[:1]]
    return np.array(kept, np.int64).reshape(-1, 2), count


@given(drawn_edges())
def test_each_node_has_its_operands_and_its_consumers(drawn: tuple[np.ndarray, int]) -> None:
    edges, count = drawn
    operands, consumers = Neighbours.operands(edges, count), Neighbours.consumers(edges, count)
    for node in range(count):
        read = [producer for consumer, producer in edges.tolist() if consumer == node]
        reading = [consumer for consumer, producer in edges.tolist() if producer == node]
        assert operands.at(node).tolist() == read
        assert consumers.at(node).tolist() == reading
        assert (operands.counts()[node], consumers.counts()[node]) == (len(read), len(reading))


@given(drawn_edges(), st.lists(st.integers(0, 8), max_size=6))
def test_those_of_several_nodes_at_once(drawn: tuple[np.ndarray, int], wanted: list[int]) -> None:
    edges, count = drawn
    nodes = np.array([node for node in wanted if node < count], np.int64)
    operands = Neighbours.operands(edges, count)
    row, neighbour = operands.spread(nodes)
    expected = [(at, other) for at, node in enumerate(nodes) for other in operands.at(node)]
    assert list(zip(row, neighbour, strict=True)) == expected


@given(drawn_edges(), drawn_edges())
def test_graphs_that_become_one(
    first: tuple[np.ndarray, int], second: tuple[np.ndarray, int]
) -> None:
    joined = Neighbours.join([Neighbours.operands(*first), Neighbours.operands(*second)])
    edges = np.concatenate([first[0], second[0] + first[1]])
    expected = Neighbours.operands(edges, first[1] + second[1])
    assert joined.starts.tolist() == expected.starts.tolist()
    assert joined.nodes.tolist() == expected.nodes.tolist()
    part = joined.cut(slice(first[1], first[1] + second[1]))
    assert [part.at(n).tolist() for n in range(second[1])] == [
        joined.at(first[1] + n).tolist() for n in range(second[1])
    ]


@given(drawn_edges())
def test_a_node_lies_one_deeper_than_what_it_reads(drawn: tuple[np.ndarray, int]) -> None:
    edges, count = drawn
    depths = [0] * count
    for _ in range(count):
        for consumer, producer in edges.tolist():
            depths[consumer] = max(depths[consumer], depths[producer] + 1)
    assert find_depths(edges, count).tolist() == depths


@given(drawn_edges(cycles=True))
def test_what_lies_on_a_cycle_or_behind_it_has_no_depth(drawn: tuple[np.ndarray, int]) -> None:
    edges, count = drawn
    found = np.zeros((count, count), bool)  # whether one is reached from another
    for _ in range(count):
        for consumer, producer in edges.tolist():
            found[consumer] |= found[producer]
            found[consumer, producer] = True
    behind = [bool(found[node, node] or (found[node] & found.diagonal()).any())
              for node in range(count)]  # fmt: skip
    assert (find_depths(edges, count) < 0).tolist() == behind
