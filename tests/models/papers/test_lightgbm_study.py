"""The LightGBM study's rows and labels, against numpy and scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from solution.analysis.contributions import explain_difference
from solution.domain.metrics import kendall_tau
from solution.models.catalogue import load_model, save_model
from solution.models.linear import LinearSettings
from solution.models.papers.lightgbm_model import (
    StudyLassoSettings,
    StudyOrdinarySettings,
    StudyRidgeSettings,
    StudyTreeSettings,
    mean_rows,
)
from solution.system.errors import InputError
from tests.made.graphs import make_tile_graph

GRAPHS = [make_tile_graph(seed, configs=40, name=f"kernel_{seed}") for seed in range(6)]
TREES = StudyTreeSettings(rounds=80, min_data_in_leaf=3)


def test_a_row_is_the_mean_of_the_nodes_and_the_tile() -> None:
    graph = GRAPHS[0]
    rows = mean_rows(graph)
    nodes = [sum(node[column] for node in graph.node_features) / 4 for column in range(140)]
    for row, config in zip(rows, graph.distinct.first, strict=True):
        np.testing.assert_allclose(row[:140], nodes, rtol=1e-6)
        np.testing.assert_array_equal(row[140:], graph.tiles[config])


def test_least_squares_predict_the_runtime_itself() -> None:
    rows = np.concatenate([mean_rows(graph) for graph in GRAPHS[:5]]).astype(float)
    runtimes = np.concatenate([g.distinct.mean(g.runtimes) for g in GRAPHS[:5]])
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


@pytest.mark.parametrize(
    "settings", [StudyOrdinarySettings(), StudyRidgeSettings(), StudyLassoSettings()]
)
def test_each_kind_comes_back_as_itself(settings: LinearSettings, tmp_path: Path) -> None:
    save_model(settings.build(0).fit(GRAPHS[:3], []), settings, 0, tmp_path)
    assert load_model(tmp_path).settings == settings


def test_what_is_not_on_a_feature_table_is_not_explained_by_it() -> None:
    rows = mean_rows(GRAPHS[0])
    for settings in (TREES, StudyOrdinarySettings()):
        ranker = settings.build(0).fit(GRAPHS[:3], [])
        with pytest.raises(InputError, match="on a feature table"):
            explain_difference(ranker, rows[:1], rows[1])
