"""Neighbours and depths, against loops over the edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from solution.domain.codebook import deduplicate, mix
from solution.domain.dividing import choose_configs
from solution.domain.neighbours import Neighbours, find_depths, index_ragged, offsets, starts_of


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


def test_the_numbers_of_splitmix64_from_seed_0() -> None:
    drawn = [int(mix(np.zeros(1, np.uint64), number)[0]) for number in (1, 2)]
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@given(st.lists(st.integers(0, 4), max_size=8))
def test_indices_of_a_ragged_array_are_those_of_a_loop(counts: list[int]) -> None:
    expected = [(row, index) for row, count in enumerate(counts) for index in range(count)]
    rows, inside = index_ragged(np.array(counts, np.int64))
    assert list(zip(rows.tolist(), inside.tolist(), strict=True)) == expected
    assert starts_of(counts).tolist() == [sum(counts[:k]) for k in range(len(counts) + 1)]
    assert offsets(counts).tolist() == [sum(counts[:k]) for k in range(len(counts))]


keys = st.tuples(st.sampled_from(["layout:nlp:random", "tile:xla"]), st.text(max_size=8))

layouts = arrays.arrays(
    np.int8,
    st.tuples(st.integers(1, 30), st.integers(0, 2), st.just(2)),
    elements=st.integers(0, 1),
)
tiles = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 30), st.just(3)), elements=st.sampled_from([0.0, 1.0, 2.5])
)


@given(keys, st.integers(0, 60), st.integers(0, 40))
def test_small_graphs_are_predicted_whole(
    key: tuple[str, str], num_configs: int, more: int
) -> None:
    assert choose_configs(key, num_configs, num_configs + more).tolist() == list(range(num_configs))


def test_choice_is_the_one_that_saved_predictions_were_made_for() -> None:
    assert choose_configs(("layout:xla:random", "unet"), 100_000, 5).tolist() == [
        1729,
        21886,
        33326,
        41922,
        44252,
    ]
    assert choose_configs(("layout:xla:random", "unet"), 5000).sum() == 2_447_924


@settings(deadline=None)
@given(st.one_of(layouts, tiles))
def test_distinct_rows_are_those_of_numpy_in_order_of_appearance(configs: np.ndarray) -> None:
    found = deduplicate(configs)
    flat = configs.reshape(len(configs), -1)
    expected = len(np.unique(flat, axis=0)) if flat.shape[1] else 1
    assert len(found.first) == expected
    assert np.array_equal(configs[found.first][found.inverse], configs)
    rows = flat.tolist()
    assert found.first.tolist() == [i for i, row in enumerate(rows) if row not in rows[:i]]


@settings(deadline=None)
@given(layouts, st.integers(0, 100))
def test_mean_is_the_average_over_identical_configurations(configs: np.ndarray, seed: int) -> None:
    found = deduplicate(configs)
    values = np.random.default_rng(seed).normal(size=len(configs)) * 1e6
    expected = []
    for first in found.first:
        same = [
            value
            for value, config in zip(values, configs, strict=True)
            if np.array_equal(config, configs[first])
        ]
        expected.append(sum(same) / len(same))
    assert found.mean(values) == pytest.approx(expected)
