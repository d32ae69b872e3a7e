"""Soft adjacency, violation ratios and nodes of importance against examples worked by hand."""

import dataclasses

import numpy as np
import torch

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.features.layout.conflict_nodes import find_importance
from solution.features.layout.violations import violation_ratios
from solution.models.nets.layers import SelfAttention
from solution.models.papers.nodes import NodeSettings
from solution.models.papers.violation import ViolationNet, ViolationSettings, soft_adjacency
from tests.made.graphs import make_layout_graph, make_nodes

NONE = -np.ones(vocabulary.NUM_LAYOUT_FEATURES, np.int8)


def _layout(**tensors: tuple[int, ...]) -> np.ndarray:
    """A layout (18,) that orders the tensors output, input and kernel as given."""
    layout = NONE.copy()
    for name, order in tensors.items():
        first = vocabulary.LAYOUT_TENSORS.index(name) * vocabulary.MAX_RANK
        layout[first : first + len(order)] = order
    return layout


def _with_layouts(layouts: list[list[np.ndarray]]) -> Graph:
    """The small program, x (6, 9) -> dot 2 -> add 4 -> reshape 5 -> tanh 6 -> reshape 7."""
    shapes: list[tuple[int, ...]] = [
        (6, 9), (9, 4), (6, 4), (6, 4), (6, 4), (6, 1, 4), (6, 1, 4), (24,)
    ]  # fmt: skip
    graph = make_layout_graph(0, configs=len(layouts))
    return dataclasses.replace(
        graph, node_features=make_nodes(shapes), configs=encode(np.array(layouts))
    )


def test_the_violation_ratio_of_a_worked_example() -> None:
    # The outputs are (6, 4), (6, 1, 4) and (24,): 6, 6 and 24 are the largest.
    layouts = [
        [_layout(output=(0, 1)), _layout(output=(0, 1, 2)), _layout(output=(0,))],  # none
        [_layout(output=(1, 0)), _layout(output=(0, 1, 2)), _layout(output=(0,))],  # 4 < 6
        [_layout(output=(1, 0)), _layout(output=(2, 1, 0)), NONE],  # two of three
        [NONE, _layout(output=(1, 2, 0)), _layout(input=(0, 1, 2))],  # one of three
        [NONE, NONE, NONE],
    ]
    graph = _with_layouts(layouts)
    expected = np.array([0, 1 / 3, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(violation_ratios(graph)[graph.layouts.rows], expected)


def test_a_node_without_a_layout_may_count_with_the_programs_own() -> None:
    # In the program the last dimension is contiguous: 4 < 6 and 4 < 6 violate, 24 does not.
    layouts = [
        [NONE, NONE, NONE],
        [_layout(output=(0, 1)), NONE, NONE],
        [_layout(output=(0, 1)), _layout(output=(0, 1, 2)), NONE],
    ]
    graph = _with_layouts(layouts)
    ratios = violation_ratios(graph, "program")[graph.layouts.rows]
    np.testing.assert_allclose(ratios, [2 / 3, 1 / 3, 0])


def test_nodes_of_importance_of_a_worked_example() -> None:
    # The addition 4 hands the order of the dot 2 on to the reshape 5, the tanh 6 that of 5 to 7.
    layouts = [
        [_layout(output=(1, 0)), _layout(input=(1, 0)), NONE],  # agreed
        [_layout(output=(1, 0)), _layout(input=(0, 1)), NONE],  # a copy between 2, 4 and 5
        [_layout(output=(1, 0)), _layout(output=(2, 1, 0)), _layout(input=(0, 1, 2))],  # 5, 6, 7
        [_layout(output=(1, 0)), NONE, _layout(output=(0,))],  # nobody else asks
    ]
    graph = _with_layouts(layouts)
    importance = find_importance(graph)
    found = importance.of(graph.layouts.codes)[graph.layouts.rows]
    assert [np.flatnonzero(row).tolist() for row in found] == [[], [2, 4, 5], [5, 6, 7], []]
    assert np.flatnonzero(importance.nodes).tolist() == [2, 4, 5, 6, 7]


def test_soft_attention_is_its_formula() -> None:
    torch.manual_seed(0)
    width, heads, edges = 8, 2, torch.tensor([[0, 1, 3], [1, 2, 4]])
    attention, x = SelfAttention(width, heads), torch.randn(5, 3, width)
    neighbours = {(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)}
    weights = soft_adjacency(edges, 5)
    found = attention(x, weights.log())
    for config in range(3):
        query, key, value = attention.project(attention.norm(x[:, config])).chunk(3, dim=-1)
        for node in range(5):
            parts = []
            for own in (slice(0, 4), slice(4, 8)):
                strengths = [
                    (1.0 if i == node or (i, node) in neighbours else 0.1)
                    * np.exp((query[node, own] @ key[i, own]).item() / 4**0.5)
                    for i in range(5)
                ]
                shares = torch.tensor(strengths, dtype=torch.float32) / sum(strengths)
                parts.append(shares @ value[:, own])
            expected = x[node, config] + attention.out(torch.cat(parts))
            torch.testing.assert_close(found[node, config], expected, atol=1e-5, rtol=1e-4)


def test_the_ratio_reaches_the_score_where_it_is_asked_for() -> None:
    graph = make_layout_graph(1)
    for ratio in (True, False):
        torch.manual_seed(0)
        ranker = ViolationSettings(width=8, ratio=ratio).build(0)
        net, inputs = ViolationNet(ranker.settings), ranker.prepare(graph)
        other = dataclasses.replace(inputs, ratio=inputs.ratio + 1)
        differs = not np.allclose(net.score_graph(inputs), net.score_graph(other))
        assert differs == ratio


def test_nodes_of_importance_are_kept_first_and_their_mean_reaches_the_score() -> None:
    layouts = [
        [_layout(output=(1, 0)), _layout(input=(0, 1)), NONE],
        [_layout(output=(1, 0)), _layout(input=(1, 0)), NONE],
    ]
    graph = _with_layouts(layouts)  # 2, 4 and 5 are of importance, 6 and 7 could be
    nodes = NodeSettings(trained=6, scored=6)
    ranker = ViolationSettings(width=8, importance=True, nodes=nodes).build(0)
    net, inputs = ViolationNet(ranker.settings), ranker.prepare(graph)
    for taken in (net.train().take(inputs), net.eval().take(inputs)):
        assert {2, 4, 5, 6, 7} <= set(taken.numbers.tolist())
        assert len(taken.numbers) == 6
        first = graph.layouts.rows[0]
        important = taken.important(np.array([first, graph.layouts.rows[1]]))[:, :, 0]
        assert taken.numbers[important[:, 0].numpy() > 0].tolist() == [2, 4, 5]
        assert important[:, 1].sum() == 0
