"""The LightGBM study's rows and labels, against numpy and scikit-learn."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, cross_val_score

from solution.analysis.explanation import explain, measure_importance
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.domain.vocabulary import NUM_OPCODES, OPCODE_IDS, OPCODES
from solution.models.base import RankerSettings
from solution.papers import study
from solution.papers.study import (
    StudyOrdinarySettings,
    StudyRidgeSettings,
    StudyTreeSettings,
    draw_settings,
    features_of,
    study_rows,
)
from tests.made.graphs import make_layout_graph, make_nodes, make_tile_graph

GRAPHS = [make_tile_graph(seed, configs=40, name=f"kernel_{seed}") for seed in range(6)]
mean_rows = study.cache_rows(None)
TREES = StudyTreeSettings(rounds=80, trials=3)


def test_the_target_is_scaled_to_the_spread_of_the_graph() -> None:
    """Runtimes 3, 2, 6 over a default of 2: (1.5 - 1) / (3 - 1), 0, 1."""
    ranker = TREES.build(0)
    expected = [0.25, 0, 1]
    assert ranker.label(np.array([3.0, 2.0, 6.0]) / 2).tolist() == expected
    assert ranker.label(np.array([3.0, 2.0, 6.0])).tolist() == expected
    assert StudyRidgeSettings().build(0).label(np.array([4.0, 4.0])).tolist() == [0, 0]


def scale(runtimes: np.ndarray) -> np.ndarray:
    return (runtimes - min(runtimes)) / (max(runtimes) - min(runtimes))


def test_least_squares_predict_the_scaled_runtime() -> None:
    rows = np.concatenate([mean_rows(graph) for graph in GRAPHS[:5]]).astype(float)
    runtimes = np.concatenate([scale(g.distinct.mean(g.runtimes)) for g in GRAPHS[:5]])
    slow = LinearRegression().fit((rows - rows.mean(0)) / (rows.std(0) + 1e-9), runtimes)
    test = (mean_rows(GRAPHS[5])[GRAPHS[5].distinct.inverse] - rows.mean(0)) / (rows.std(0) + 1e-9)
    found = StudyOrdinarySettings().build(0).fit(GRAPHS[:5], []).predict(GRAPHS[5])
    expected = slow.predict(test)
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=0.01)


def test_trees_learn_runtimes_and_linear_models_one_order_for_all_kernels() -> None:
    ranker = TREES.build(0).fit(GRAPHS, [])
    for graph in GRAPHS:
        assert kendall_tau(ranker.predict(graph), graph.runtimes) > 0.6
    linear = StudyRidgeSettings().build(0).fit(GRAPHS, [])
    weights = linear.weights_ * linear.scaler_.scale
    graph = GRAPHS[0]
    order = np.argsort(graph.tiles @ weights[140:])  # nothing of the kernel takes part
    scores = linear.predict(graph)[order]
    assert (np.diff(scores) >= -1e-3 * np.abs(scores).max()).all()


def test_trees_are_those_of_the_best_of_the_trials_on_folds_over_kernels() -> None:
    """Every setting that is drawn, scored by scikit-learn's own trees on the same folds."""
    ranker = StudyTreeSettings(rounds=12, trials=3, folds=3).build(0)
    table = ranker.make_table([ranker._rows(graph, 1000) for graph in GRAPHS])
    groups = np.repeat(np.arange(len(GRAPHS)), table.sizes)
    errors = {}
    for number, drawn in enumerate(draw_settings(3, 0)):
        own = ranker.settings.parameters(0, table.features.size) | drawn
        for rounds in range(1, 13):
            model = LGBMRegressor(n_estimators=rounds, **own)
            scored = cross_val_score(
                model, table.features, table.labels,
                groups=groups, cv=GroupKFold(3), scoring="neg_mean_squared_error",
            )  # fmt: skip
            errors[number, rounds] = -scored.mean()
    number, rounds = min(errors, key=errors.__getitem__)
    parameters, found = ranker.search(table)
    assert found == rounds
    assert draw_settings(3, 0)[number].items() <= parameters.items()
    assert ranker.fit(GRAPHS, []).fitted().num_trees() == rounds


@pytest.mark.parametrize("settings", [TREES, StudyOrdinarySettings(opcodes="kept")])
def test_the_studys_own_columns_are_explained(settings: RankerSettings) -> None:
    ranker = settings.build(0).fit(GRAPHS[:5], [])
    found = explain(ranker, GRAPHS[5])
    assert len(found.features) == len(found.contributions) == found.rows.shape[1]
    gap = found.scores[found.slow] - found.scores[found.fast]
    assert found.contributions.sum() == pytest.approx(gap, rel=1e-3, abs=1e-5)
    assert measure_importance(ranker).sum() == pytest.approx(1)
    assert found.features[140].name == "kernel_bound_0"


def make_program(outputs: list[list[tuple[int, ...]]]) -> Graph:
    """x (60, 100) -> tanh -> reshape (3, 20, 100) -> exp -> reshape (6000,) -> add -> add.

    `outputs` are the output layouts of the two reshapes in each configuration.
    """
    layouts = np.full((len(outputs), 2, 18), -1, np.int8)
    for config, nodes in enumerate(outputs):
        for node, order in enumerate(nodes):
            layouts[config, node, : len(order)] = order
    opcodes = ("parameter", "tanh", "reshape", "exponential", "reshape", "add", "add")
    shapes = [(60, 100), (60, 100), (3, 20, 100), (3, 20, 100), (6000,), (6000,), (6000,)]
    return Graph(
        name="program",
        collection=collection("layout:xla:random"),
        node_features=make_nodes(shapes),
        node_opcodes=np.array([OPCODE_IDS[name] for name in opcodes], np.uint8),
        edges=np.array([[1, 0], [2, 1], [3, 2], [4, 3], [5, 4], [6, 5], [6, 5]]),
        configurable=np.array([2, 4]),
        configs=encode(layouts),
        runtimes=np.arange(1.0, 1 + len(outputs)),
    )


def column(graph: Graph, name: str, opcodes: str | None = None) -> list[float]:
    names = [feature.name for feature in features_of(graph.collection.kind, opcodes)]
    rows = study_rows(graph, opcodes)
    assert rows.shape[1] == len(names)
    return rows[graph.distinct.inverse, names.index(name)].tolist()


def test_padding_is_what_registers_of_128_by_8_add_to_the_outputs() -> None:
    graph = make_program([[(2, 1, 0), (0,)], [(1, 2, 0), (0,)], [(), ()], [(0, 1, 2), ()]])
    # 3 x 20 x 100: 100 to 128 and 20 to 24; 6000 to 6016 and 1 to 8.
    program = 3 * (24 * 128) - 6000 + 8 * 6016 - 6000
    # 20 to 128 and 100 to 104; 3 to 128 and 20 to 24, a hundred times.
    others = [3 * (104 * 128) - 3 * 24 * 128, 100 * (24 * 128) - 3 * 24 * 128]
    expected = [program, program + others[0], program, program + others[1]]
    assert column(graph, "padding") == expected


def test_a_kernel_has_the_mean_of_its_nodes_its_tile_and_its_opcodes() -> None:
    graph = make_tile_graph(3, configs=9)
    rows = study_rows(graph, "kept")[graph.distinct.inverse]
    assert rows.shape == (9, 140 + 24 + NUM_OPCODES)
    for place in range(140):
        mean = sum(node[place] for node in graph.node_features.astype(float)) / 4
        assert rows[:, place] == pytest.approx(mean, rel=1e-6)
    np.testing.assert_array_equal(rows[:, 140:164], graph.tiles)
    for place, name in enumerate([*OPCODES.values(), "virtual"]):
        opcode = OPCODE_IDS.get(name, -1)
        share = sum(own == opcode for own in graph.node_opcodes) / 4
        assert rows[:, 164 + place] == pytest.approx(share)


def slow_row(graph: Graph, config: int) -> list[float]:
    """Padding, the share of each value, convolutions, dots, reshapes: node by node."""
    padding, values, total = 0, dict.fromkeys(range(-1, 6), 0), 0
    tensor = graph.layouts.expand()[config].tolist()
    for node, slots in zip(graph.configurable, tensor, strict=True):
        shape = [int(size) for size in graph.node_features[node, 21:27] if size]
        program = [int(axis) for axis in graph.node_features[node, 134:140]]
        order = [
            own if given == -1 else given for given, own in zip(slots[:6], program, strict=True)
        ]
        minor, second = shape[order[0]], shape[order[1]] if len(shape) > 1 else 1
        stored = math.ceil(minor / 128) * 128 * math.ceil(second / 8) * 8
        padding += math.prod(shape) // (minor * second) * stored - math.prod(shape)
        for value in slots:
            values[value] += 1
            total += 1
    counts = [
        sum(graph.node_opcodes[node] == OPCODE_IDS[name] for node in graph.configurable)
        for name in ("convolution", "dot", "reshape")
    ]
    return [padding, *(count / total for count in values.values()), *counts]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_rows_are_those_that_are_counted_node_by_node(seed: int, configs: int) -> None:
    graph = make_layout_graph(seed, configs)
    found = study_rows(graph)[graph.distinct.inverse]
    expected = [slow_row(graph, config) for config in range(configs)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_program_without_configurable_nodes_has_rows() -> None:
    none = encode(np.empty((3, 0, 18), np.int8))
    empty = np.empty(0, np.int64)
    graph = dataclasses.replace(make_layout_graph(3, 3), configurable=empty, configs=none)
    assert np.isfinite(study_rows(graph, "all")).all()
