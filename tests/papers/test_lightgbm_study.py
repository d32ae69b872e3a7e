"""The LightGBM study's rows and labels, against numpy and scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, cross_val_score

from solution.analysis.contributions import explain_difference, measure_importance
from solution.analysis.explanation import explain
from solution.domain.metrics import kendall_tau
from solution.models.base import RankerSettings
from solution.models.catalogue import load_model, save_model
from solution.models.linear import LinearSettings
from solution.models.nothing import NothingSettings
from solution.papers.lightgbm_model import (
    StudyLassoSettings,
    StudyOrdinarySettings,
    StudyRidgeSettings,
    StudyTreeSettings,
    draw_settings,
    study_rows,
)
from solution.system.errors import InputError
from tests.made.graphs import make_tile_graph

GRAPHS = [make_tile_graph(seed, configs=40, name=f"kernel_{seed}") for seed in range(6)]
mean_rows = study_rows(None)
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


@pytest.mark.parametrize(
    "settings", [StudyOrdinarySettings(), StudyRidgeSettings(), StudyLassoSettings()]
)
def test_each_kind_comes_back_as_itself(settings: LinearSettings, tmp_path: Path) -> None:
    save_model(settings.build(0).fit(GRAPHS[:3], []), settings, 0, tmp_path)
    assert load_model(tmp_path).settings == settings


def test_trees_are_those_of_the_best_of_the_trials_on_folds_over_kernels() -> None:
    """Every setting that is drawn, scored by scikit-learn's own trees on the same folds."""
    ranker = StudyTreeSettings(rounds=30, trials=4, folds=3).build(0)
    table = ranker.make_table([ranker._rows(graph, 1000) for graph in GRAPHS])
    groups = np.repeat(np.arange(len(GRAPHS)), table.sizes)
    errors = {}
    for number, drawn in enumerate(draw_settings(4, 0)):
        own = ranker.settings.parameters(0, table.features.size) | drawn
        for rounds in range(1, 31):
            model = LGBMRegressor(n_estimators=rounds, **own)
            scored = cross_val_score(
                model, table.features, table.labels,
                groups=groups, cv=GroupKFold(3), scoring="neg_mean_squared_error",
            )  # fmt: skip
            errors[number, rounds] = -scored.mean()
    number, rounds = min(errors, key=errors.__getitem__)
    parameters, found = ranker.search(table)
    assert found == rounds
    assert draw_settings(4, 0)[number].items() <= parameters.items()
    assert ranker.fit(GRAPHS, []).fitted().num_trees() == rounds


def test_a_single_kernel_is_learned_without_a_search() -> None:
    ranker = StudyTreeSettings(rounds=7, min_data_in_leaf=3).build(0).fit(GRAPHS[:1], [])
    assert ranker.fitted().num_trees() == 7


@pytest.mark.parametrize("settings", [TREES, StudyOrdinarySettings(opcodes="kept")])
def test_the_studys_own_columns_are_explained(settings: RankerSettings) -> None:
    ranker = settings.build(0).fit(GRAPHS[:5], [])
    found = explain(ranker, GRAPHS[5])
    assert len(found.features) == len(found.contributions) == found.rows.shape[1]
    gap = found.scores[found.slow] - found.scores[found.fast]
    assert found.contributions.sum() == pytest.approx(gap, rel=1e-3, abs=1e-5)
    assert measure_importance(ranker).sum() == pytest.approx(1)
    assert found.features[140].name == "kernel_bound_0"


def test_what_is_neither_trees_nor_linear_is_not_explained() -> None:
    with pytest.raises(InputError, match="NothingRanker cannot be explained"):
        explain_difference(NothingSettings().build(0), np.zeros((1, 2)), np.zeros(2))
