"""Violation ratios, chosen features and preferred nodes against examples worked by hand."""

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.features.layout.violations import violation_ratios
from solution.papers.nodes import NodeInputs, NodeSettings, layout_numbers
from solution.papers.tpugraphs import JoinedNet, TpuGraphs, TpuGraphsSettings
from solution.papers.violation import (
    CHOSEN,
    COLUMNS,
    ViolationNet,
    ViolationSettings,
    find_important,
    find_preferred,
)
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
    """The addition 4 hands the order of the dot 2 on to the reshape 5, the tanh 6 that of 5 to 7.

    So 2 and 5 may disagree on the tensors of 2 and 4, and 5 and 7 on those of 5 and 6; nobody
    orders the parameters 0, 1 and 3 in two ways.
    """
    graph = _with_layouts([[_layout(output=(1, 0)), _layout(input=(0, 1)), NONE], 3 * [NONE]])
    assert np.flatnonzero(find_important(graph)).tolist() == [2, 4, 5, 6, 7]
    without = dataclasses.replace(graph, edges=graph.edges[:-1])  # nobody hands on to 7
    assert np.flatnonzero(find_important(without)).tolist() == [2, 4, 5]


def test_the_ratio_reaches_the_score_where_it_is_asked_for() -> None:
    graph = make_layout_graph(1)
    for ratio in (True, False):
        torch.manual_seed(0)
        ranker = ViolationSettings(width=8, ratio=ratio).build(0)
        net, inputs = ViolationNet(ranker.settings), ranker.prepare(graph)
        other = dataclasses.replace(inputs, ratio=inputs.ratio + 1)
        differs = not np.allclose(net.score_graph(inputs), net.score_graph(other))
        assert differs == ratio


def test_configurable_nodes_and_those_of_importance_are_kept_first() -> None:
    graph = _with_layouts([[_layout(output=(1, 0)), _layout(input=(0, 1)), NONE], 3 * [NONE]])
    bare = dataclasses.replace(graph, edges=graph.edges[:-1])  # 7 alone: 2, 4, 5 may disagree
    assert np.flatnonzero(find_preferred(bare)).tolist() == [2, 4, 5, 7]
    nodes = NodeSettings(trained=5, scored=5)
    ranker = ViolationSettings(width=8, importance=True, nodes=nodes).build(0)
    net, inputs = ViolationNet(ranker.settings), ranker.prepare(bare)
    for taken in (net.train().take(inputs), net.eval().take(inputs)):
        assert len(taken.opcodes) == 5
        assert taken.preferred.sum() == 4
        assert len(taken.configurable) == 3


def _net(**settings: Any) -> ViolationNet:
    torch.manual_seed(0)
    return ViolationNet(ViolationSettings(width=8, heads=2, head_width=4, **settings)).eval()


def _begin(net: JoinedNet, inputs: NodeInputs, configs: np.ndarray) -> Tensor:
    return net.begin(inputs, layout_numbers(inputs, configs))


def test_attention_stands_in_front_of_the_baseline() -> None:
    graph, configs = make_layout_graph(1), np.arange(4)
    net = _net()
    inputs = ViolationSettings().build(0).prepare(graph)
    rows = net.rows(inputs, layout_numbers(inputs, configs))
    attended = net.attention(rows, inputs.edge_index)
    torch.testing.assert_close(_begin(net, inputs, configs), attended)
    last = _net(attention="last")
    last.load_state_dict(net.state_dict())
    torch.testing.assert_close(_begin(last, inputs, configs), rows)
    assert not np.allclose(last.score_graph(inputs), net.score_graph(inputs))


def test_without_attention_and_ratio_it_is_the_baseline_of_tpugraphs() -> None:
    net = _net(attention=None, ratio=False)
    baseline = TpuGraphs(TpuGraphsSettings(width=8, segment=None)).eval()
    baseline.load_state_dict(net.state_dict())
    inputs = ViolationSettings().build(0).prepare(make_layout_graph(1))
    np.testing.assert_array_equal(net.score_graph(inputs), baseline.score_graph(inputs))


def test_30_features_are_chosen_by_hand_and_no_other_is_looked_at() -> None:
    assert len(CHOSEN) == len(set(CHOSEN.values())) == len(COLUMNS) == 30
    assert 0 <= COLUMNS.min() <= COLUMNS.max() < 140
    graph = make_layout_graph(1)
    ranker = ViolationSettings(width=8, compressed=True, nodes=NodeSettings()).build(0)
    torch.manual_seed(0)
    net = ViolationNet(ranker.settings)
    inputs = ranker.prepare(graph)
    assert inputs.numeric.shape[1] + inputs.tokens.shape[1] == 30
    scores = net.score_graph(inputs)
    for column, is_seen in ((21, True), (22, True), (1, False), (30, False), (5, False)):
        assert (column in CHOSEN.values()) == is_seen
        features = graph.node_features.copy()
        features[4, column] += 3
        changed = ranker.prepare(dataclasses.replace(graph, node_features=features))
        assert np.array_equal(net.score_graph(changed), scores) != is_seen


def test_the_widths_of_the_submission_are_the_reports() -> None:
    settings = ViolationSettings()
    assert (settings.heads, settings.head_width, settings.mask) == (16, 32, 0.1)
    assert (settings.rounds, settings.block, settings.attention) == (3, "sage", "first")
    assert settings.nodes == NodeSettings(trained=1000)
    assert (settings.training.configs_per_graph, settings.training.chosen_by) == (16, "opa")
