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
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.domain.vocabulary import NUM_OPCODES, OPCODE_IDS, OPCODES
from solution.models.base import RankerSettings
from solution.papers import study
from tests.made.graphs import make_layout_graph, make_tile_graph

GRAPHS = [make_tile_graph(seed, configs=40, name=f"kernel_{seed}") for seed in range(6)]
mean_rows = study.cache_rows(None)
TREES = study.StudyTreeSettings(rounds=80, trials=3)


def test_the_target_is_scaled_to_the_spread_of_the_graph() -> None:
    """Runtimes 3, 2, 6 over a default of 2: (1.5 - 1) / (3 - 1), 0, 1."""
    ranker = TREES.build(0)
    expected = [0.25, 0, 1]
    assert ranker.label(np.array([3.0, 2.0, 6.0]) / 2).tolist() == expected
    assert ranker.label(np.array([3.0, 2.0, 6.0])).tolist() == expected
    assert study.StudyRidgeSettings().build(0).label(np.array([4.0, 4.0])).tolist() == [0, 0]


def scale(runtimes: np.ndarray) -> np.ndarray:
    return (runtimes - min(runtimes)) / (max(runtimes) - min(runtimes))


def test_least_squares_predict_the_scaled_runtime() -> None:
    rows = np.concatenate([mean_rows(graph) for graph in GRAPHS[:5]]).astype(float)
    runtimes = np.concatenate([scale(g.distinct.mean(g.runtimes)) for g in GRAPHS[:5]])
    slow = LinearRegression().fit((rows - rows.mean(0)) / (rows.std(0) + 1e-9), runtimes)
    test = (mean_rows(GRAPHS[5])[GRAPHS[5].distinct.inverse] - rows.mean(0)) / (rows.std(0) + 1e-9)
    found = study.StudyOrdinarySettings().build(0).fit(GRAPHS[:5], []).predict(GRAPHS[5])
    expected = slow.predict(test)
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=0.01)


def test_trees_learn_runtimes_and_linear_models_one_order_for_all_kernels() -> None:
    ranker = TREES.build(0).fit(GRAPHS, [])
    for graph in GRAPHS:
        assert kendall_tau(ranker.predict(graph), graph.runtimes) > 0.6
    linear = study.StudyRidgeSettings().build(0).fit(GRAPHS, [])
    weights = linear.weights_ * linear.scaler_.scale
    graph = GRAPHS[0]
    order = np.argsort(graph.tiles @ weights[140:])  # nothing of the kernel takes part
    scores = linear.predict(graph)[order]
    assert (np.diff(scores) >= -1e-3 * np.abs(scores).max()).all()


def test_trees_are_those_of_the_best_of_the_trials_on_folds_over_kernels() -> None:
    """Every setting that is drawn, scored by scikit-learn's own trees on the same folds."""
    ranker = study.StudyTreeSettings(rounds=12, trials=3, folds=3).build(0)
    table = ranker.make_table([ranker._rows(graph, 1000) for graph in GRAPHS])
    groups = np.repeat(np.arange(len(GRAPHS)), table.sizes)
    errors = {}
    for number, drawn in enumerate(study.draw_settings(3, 0)):
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
    assert study.draw_settings(3, 0)[number].items() <= parameters.items()
    assert ranker.fit(GRAPHS, []).fitted().num_trees() == rounds


@pytest.mark.parametrize("settings", [TREES, study.StudyOrdinarySettings(opcodes="kept")])
def test_the_studys_own_columns_are_explained(settings: RankerSettings) -> None:
    ranker = settings.build(0).fit(GRAPHS[:5], [])
    found = explain(ranker, GRAPHS[5])
    assert len(found.features) == len(found.contributions) == found.rows.shape[1]
    gap = found.scores[found.slow] - found.scores[found.fast]
    assert found.contributions.sum() == pytest.approx(gap, rel=1e-3, abs=1e-5)
    assert measure_importance(ranker).sum() == pytest.approx(1)
    assert found.features[140].name == "kernel_bound_0"


def test_a_kernel_has_the_mean_of_its_nodes_its_tile_and_its_opcodes() -> None:
    graph = make_tile_graph(3, configs=9)
    rows = study.study_rows(graph, "kept")[graph.distinct.inverse]
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
    """Padding to registers of 128 by 8, the share of each value, convolutions, dots, reshapes."""
    padding, values, total = 0, dict.fromkeys(range(-1, 6), 0), 0
    tensor = graph.layouts.expand()[config].tolist()
    for node, slots in zip(graph.configurable, tensor, strict=True):
        shape = [int(size) for size in graph.node_features[node, 21:27] if size]
        program = [int(axis) for axis in graph.node_features[node, 134:140]]
        order = [own if slot == -1 else slot for slot, own in zip(slots[:6], program, strict=True)]
        minor, second = shape[order[0]], shape[order[1]] if len(shape) > 1 else 1
        stored = math.ceil(minor / 128) * 128 * math.ceil(second / 8) * 8
        padding += math.prod(shape) // (minor * second) * stored - math.prod(shape)
        total += len(slots)
        for value in slots:
            values[value] += 1
    opcodes, names = graph.node_opcodes[graph.configurable], ("convolution", "dot", "reshape")
    counts = [sum(opcodes == OPCODE_IDS[name]) for name in names]
    return [padding, *(count / total for count in values.values()), *counts]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_rows_are_those_that_are_counted_node_by_node(seed: int, configs: int) -> None:
    graph = make_layout_graph(seed, configs)
    found = study.study_rows(graph)[graph.distinct.inverse]
    expected = [slow_row(graph, config) for config in range(configs)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    names = [feature.name for feature in study.features_of("layout", None)]
    assert names[0] == "padding" and len(names) == found.shape[1]


def test_a_program_without_configurable_nodes_has_rows() -> None:
    none = encode(np.empty((3, 0, 18), np.int8))
    empty = np.empty(0, np.int64)
    graph = dataclasses.replace(make_layout_graph(3, 3), configurable=empty, configs=none)
    assert np.isfinite(study.study_rows(graph, "all")).all()
