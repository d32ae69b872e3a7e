"""What is compiled against what it stands for."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.models.layout import compiled_steps, steps
from solution.models.layout.inputs import describe_graph
from solution.models.layout.steps import Steps
from solution.models.nets.sparse_rows import SparseRows
from tests.made.graphs import make_layout_graph

WIDTH = 3


def compute(derived: Steps, pooling: SparseRows, values: np.ndarray, configs: int) -> np.ndarray:
    """Sums over nodes (configs, sums) of what rounds make of `values` (nodes + pairs, WIDTH)."""
    x = values[derived.nodes]
    x[derived.configured] += values[len(values) - 1 - derived.pairs]
    for aggregation, marks, parents in derived.rounds:
        extra = marks.expand(len(parents))
        messages = np.repeat(x, 3, axis=0) * np.tile(np.float32([[1], [2], [3]]), (len(x), 1))
        received = aggregation.product(messages) + extra.sum(axis=1, keepdims=True)
        x = np.tanh(received) + x[parents]
    pooled = pooling.product(x).reshape(1 + 2 * configs, -1)
    return pooled[0] + pooled[1 : 1 + configs] + pooled[1 + configs :]


@settings(max_examples=40, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 50), min_size=1, max_size=3),
    configs=st.integers(1, 40),
    rounds=st.integers(0, 3),
)
def test_it_is_what_is_compiled(seeds: list[int], configs: int, rounds: int) -> None:
    graphs = [make_layout_graph(seed, configs=40) for seed in seeds]
    structures = [describe_graph(graph, "neighbourhood", 1).structure for graph in graphs]
    generator = np.random.default_rng(configs)
    known = [len(own.codebook.codes) for own in structures]  # some are there twice
    rows = np.stack([np.resize(generator.permutation(size), configs) for size in known], axis=1)
    expected = steps.derive_steps(structures, rows, rounds)
    found = compiled_steps.derive_steps(structures, rows, rounds)
    size = sum(own.num_nodes + own.num_pairs for own in structures)
    values = generator.normal(size=(size, WIDTH)).astype(np.float32)
    pooling = compiled_steps.find_pooling(structures, found.last)
    sums = compute(found, pooling, values, configs)
    wanted = compute(expected, steps.find_pooling(structures, expected.last), values, configs)
    np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-5)
    for one, other in zip(found.rounds, expected.rounds, strict=True):
        assert len(one.parents) == len(other.parents)  # no colour is there twice
