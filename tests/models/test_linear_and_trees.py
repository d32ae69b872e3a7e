"""Linear baselines against numpy, and lists of lambdarank."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.metrics import kendall_tau
from solution.features.table import feature_table
from solution.models.base import RankerSettings
from solution.models.labels import normalised_rank, relevance
from solution.models.linear import LassoSettings, OrdinarySettings, RidgeSettings
from solution.models.trees.boosted_trees import GraphRows
from solution.models.trees.lightgbm_ranker import LightGBMSettings, chunk
from tests.made.graphs import make_tile_graph

GRAPHS = [make_tile_graph(seed, configs=30, name=f"kernel_{seed}") for seed in range(6)]


def normal_equations(penalty: float) -> np.ndarray:
    """Predicted ranks of the last graph by ridge on standardised columns, written out."""
    tables = [graph.distinct.first for graph in GRAPHS]
    rows = [feature_table(g).to_numpy()[f] for g, f in zip(GRAPHS, tables, strict=True)]
    ranks = [normalised_rank(g.distinct.mean(g.runtimes)) for g in GRAPHS]
    train = np.concatenate(rows[:5]).astype(float)
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1)
    scaled = (train[:, varies] - mean[varies]) / deviation[varies]
    centred = np.concatenate(ranks[:5]) - np.concatenate(ranks[:5]).mean()
    weights = np.linalg.solve(
        scaled.T @ scaled + penalty * np.eye(scaled.shape[1]), scaled.T @ centred
    )
    test = (feature_table(GRAPHS[5]).to_numpy()[:, varies] - mean[varies]) / deviation[varies]
    return test @ weights


def test_ridge_is_the_solution_of_the_normal_equations() -> None:
    ranker = RidgeSettings(grid=(10.0,)).build(0).fit(GRAPHS[:5], [])
    expected = normal_equations(10.0)
    found = ranker.predict(GRAPHS[5])
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-3)


def test_the_penalty_is_chosen_from_the_grid_and_kept(tmp_path: Path) -> None:
    ranker = RidgeSettings().build(0).fit(GRAPHS[:4], [GRAPHS[4]])
    assert ranker.penalty_ in RidgeSettings().grid
    ranker.save(tmp_path)
    assert RidgeSettings().build(0).load(tmp_path).penalty_ == ranker.penalty_
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors"}


def test_a_lasso_leaves_columns_out_and_least_squares_does_not() -> None:
    lasso = LassoSettings(grid=(1e-2,)).build(0).fit(GRAPHS[:5], [])
    ordinary = OrdinarySettings().build(0).fit(GRAPHS[:5], [])
    assert np.count_nonzero(lasso.weights_) < np.count_nonzero(ordinary.weights_) / 2
    assert ordinary.penalty_ is None


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 20), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_chunks_stay_inside_their_graph(sizes: list[int], length: int, seed: int) -> None:
    order, new = chunk(sizes, length, seed)
    assert sorted(order) == list(range(sum(sizes)))
    assert max(new) <= length
    graph_of = np.repeat(np.arange(len(sizes)), sizes)[order]
    lists = np.split(graph_of, np.cumsum(new)[:-1])
    for graph, size in enumerate(sizes):
        chunks = [len(members) for members in lists if members[0] == graph]
        assert len(chunks) == -(-size // length)
        assert max(chunks) - min(chunks) <= 1
    assert all(len(set(members)) == 1 for members in lists)


def test_lists_of_lambdarank_keep_the_relevance_in_the_whole_graph() -> None:
    runtimes = np.random.default_rng(0).permutation(100).astype(float)
    rows = GraphRows(runtimes[:, None].astype(np.float32), runtimes, "tile:xla")
    table = LightGBMSettings(list_length=30).build(0).make_table([rows, rows])
    assert table.sizes == [25] * 8
    by_runtime = relevance(np.arange(100.0), LightGBMSettings().relevance_levels)
    assert np.array_equal(table.labels, by_runtime[table.features[:, 0].astype(int)])


def test_lambdarank_on_chunks_learns_as_well() -> None:
    held_out = GRAPHS[5]
    taus = [
        kendall_tau(
            LightGBMSettings(list_length=length).build(0).fit(GRAPHS[:5], []).predict(held_out),
            held_out.runtimes,
        )
        for length in (8, 1000)
    ]
    assert taus[0] > taus[1] - 0.1


@pytest.mark.parametrize(
    ("bounded", "spelled_out"),
    [
        (LightGBMSettings(max_rows=50), LightGBMSettings(max_configs=10)),
        (RidgeSettings(max_rows=50), RidgeSettings(max_configs=10)),
    ],
    ids=["trees", "linear"],
)
def test_a_table_has_no_more_rows_than_it_may(
    bounded: RankerSettings, spelled_out: RankerSettings
) -> None:
    """Five graphs share them evenly."""
    found, expected = (
        ranker.build(0).fit(GRAPHS[:5], []).predict(GRAPHS[5]) for ranker in (bounded, spelled_out)
    )
    np.testing.assert_array_equal(found, expected)
