"""Which configurations a ranker learns from, and the labels that it is given."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from solution.domain.dividing import choose_configs
from solution.features.table import feature_table
from solution.models.base import RankerSettings
from solution.models.layout.known_costs import choose_predicted
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import LassoSettings, RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.sampling import choose_rows, normalised_rank, relevance
from solution.models.table_ranker import TableSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.models.trees.boosted_trees import GraphRows
from solution.models.trees.lightgbm_ranker import LightGBMSettings, chunk
from solution.papers.node_subsets import NodeSettings
from solution.papers.segment_training import SegmentSettings
from solution.papers.study import StudyLassoSettings
from solution.papers.tpugraphs import TpuGraphsSettings, TpuGraphsTileSettings
from solution.papers.violation import ViolationSettings
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph


def test_unlabelled_graph_cannot_be_learned_from() -> None:
    graph = make_layout_graph(labelled=False)
    with pytest.raises(ValueError, match="no labels"):
        choose_rows(graph, limit=10, seed=0)


def test_training_rows_are_distinct_and_average_the_labels() -> None:
    graph = make_layout_graph(configs=4).select(np.array([0, 1, 0, 2]))
    graph = dataclasses.replace(graph, runtimes=np.array([1.0, 2.0, 3.0, 4.0]))
    rows = choose_rows(graph, limit=10, seed=0)
    distinct = np.unique(graph.layouts.expand().reshape(4, -1), axis=0)
    assert len(rows.graph.distinct.first) == len(rows.runtimes) == len(distinct)
    assert rows.runtimes.tolist() == [2.0, 2.0, 4.0][: len(distinct)]


@given(st.integers(1, 9), st.integers(0, 100))
def test_rows_that_are_drawn_keep_all_their_copies(limit: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(0, 12, 40)
    graph = make_layout_graph().select(drawn)
    rows = choose_rows(graph, limit, seed)
    few = rows.graph.distinct
    assert len(few.first) == len(rows.runtimes) == min(limit, len(graph.distinct.first))
    assert rows.graph.runtimes is not None
    np.testing.assert_allclose(few.mean(rows.graph.runtimes), rows.runtimes)
    whole = [config.tobytes() for config in graph.layouts.expand()]
    kept = [config.tobytes() for config in rows.graph.layouts.expand()]
    assert all(kept.count(config) == whole.count(config) for config in kept)


def test_relevance_rises_with_speed_and_ties_share_theirs() -> None:
    found = relevance(np.array([10.0, 30.0, 20.0, 20.0]), levels=5)
    assert found.tolist() == [4, 0, 2, 2]


@dataclass(frozen=True)
class Counting(TableSettings):
    """Scores rows by their place, in whole numbers from `first` on."""

    first: int = 0

    def fit_rows(self, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        return np.zeros(1)

    def score_rows(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return self.first + np.arange(len(rows))


@pytest.mark.parametrize("first", [0, 1 << 40, -(1 << 62)])
def test_whole_numbers_keep_their_order_however_large(first: int) -> None:
    graph = make_tile_graph(0)
    scores = Counting(first=first).build(0).fit([graph], []).predict(graph)
    place = graph.distinct.inverse
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(
        np.argsort(scores, kind="stable"), np.argsort(place, kind="stable")
    )


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: TrainingSettings(loss="listmle"),
     "loss is 'listmle', expected one of pairwise_hinge, .*, runtime_squared_error. "
     "Did you mean list_mle"),
    (lambda: TrainingSettings(loss="mle 7"), "loss is 'mle 7', expected one of [^?]*$"),
    (lambda: TrainingSettings(loss=None), "loss is None, expected one of"),  # type: ignore[arg-type]
    (lambda: TrainingSettings(loss=["list_mle"]),  # type: ignore[arg-type]
     "loss is .'list_mle'., expected one of"),
    (lambda: TrainingSettings(optimizer="adamax"),
     "optimizer is 'adamax', expected one of adamw, adam. "),
    (lambda: TrainingSettings(chosen_by="loss"), "chosen_by is 'loss', expected one of score, opa"),
    (lambda: NodeSettings(draw="cost"), "draw is 'cost', expected one of evenly, work"),
    (lambda: NodeSettings(subsets=0), "subsets is 0, expected a number from 1 to 1,000"),
    (lambda: ViolationSettings(attention="middle"),
     "attention is 'middle', expected one of first, last, None"),
    (lambda: ViolationSettings(heads=0), "heads is 0, expected a number from 1 to 64"),
    (lambda: TpuGraphsSettings(block="both_ways"),
     "block is 'both_ways', expected one of sage, gcn"),
    (lambda: LayoutGnnSettings(pruning="neighborhood"),
     "pruning is 'neighborhood', expected one of neighbourhood, virtual, nothing. "
     "Did you mean neighbourhood"),
    (lambda: LayoutGnnSettings(rounds=()), r"rounds is \(\), expected a tuple of one even width"),
    (lambda: LayoutGnnSettings(rounds=(8, 5)), r"rounds is \(8, 5\), expected .* even"),
    (lambda: LayoutGnnSettings(rounds=(8, 0)), r"rounds is \(8, 0\), expected .* even"),
    (lambda: LayoutGnnSettings(rounds=64), "rounds is 64, expected a tuple"),  # type: ignore[arg-type]
    (lambda: TileGnnSettings(block="sagee"),
     "block is 'sagee', expected one of both_ways, sage, gcn. Did you mean sage"),
    (lambda: TileGnnSettings(block="GCN "), "block is 'GCN ', expected one of"),
    (lambda: NodeSettings(pruning="none"), "pruning is 'none', expected one of"),
    (lambda: TpuGraphsTileSettings(block="mlp"),
     "block is 'mlp', expected one of both_ways, sage, gcn, None"),
    (lambda: TpuGraphsTileSettings(join="sideways"),
     "join is 'sideways', expected one of late, early"),
    (lambda: SegmentSettings(partition="random"),
     "partition is 'random', expected one of metis, topological"),
    (lambda: RidgeSettings(grid=()), r"grid is \(\), expected a tuple of one number or more"),
    (lambda: LassoSettings(grid=(0.1, -1.0)), "grid is .*, expected .* none below 0"),
    (lambda: StudyLassoSettings(grid=(float("nan"),)), "grid is .*, expected .* none below 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_no_setting_can_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_saved_settings_are_checked_as_well() -> None:
    """With the same message: pydantic hands errors on that are no ValueError."""
    known = TypeAdapter(LayoutGnnSettings)
    assert known.validate_python({"rounds": [8, 4]}).rounds == (8, 4)
    with pytest.raises(InputError, match="expected one"):
        known.validate_python({"pruning": "all"})


GRAPHS = [make_tile_graph(seed, configs=30, name=f"kernel_{seed}") for seed in range(6)]


def test_ridge_is_the_solution_of_the_normal_equations() -> None:
    """On standardised columns, of ranks, written out."""
    first = [graph.distinct.first for graph in GRAPHS]
    rows = [feature_table(g).to_numpy()[f] for g, f in zip(GRAPHS, first, strict=True)]
    ranks = [normalised_rank(g.distinct.mean(g.runtimes)) for g in GRAPHS]
    train, labels = np.concatenate(rows[:5]).astype(float), np.concatenate(ranks[:5])
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1)
    scaled = (train[:, varies] - mean[varies]) / deviation[varies]
    squares = scaled.T @ scaled + 10 * np.eye(scaled.shape[1])
    weights = np.linalg.solve(squares, scaled.T @ (labels - labels.mean()))
    test = (feature_table(GRAPHS[5]).to_numpy()[:, varies] - mean[varies]) / deviation[varies]
    found = RidgeSettings(grid=(10.0,)).build(0).fit(GRAPHS[:5], []).predict(GRAPHS[5])
    expected = test @ weights
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-3)


def test_the_penalty_is_chosen_from_the_grid_and_kept(tmp_path: Path) -> None:
    ranker = RidgeSettings().build(0).fit(GRAPHS[:4], [GRAPHS[4]])
    assert ranker.penalty_ in RidgeSettings().grid
    ranker.save(tmp_path)
    assert RidgeSettings().build(0).load(tmp_path).penalty_ == ranker.penalty_
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors"}


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


@pytest.mark.parametrize(("bounded", "spelled_out"), [
    (LightGBMSettings(max_rows=50), LightGBMSettings(max_configs=10)),
    (RidgeSettings(max_rows=50), RidgeSettings(max_configs=10)),
], ids=["trees", "linear"])  # fmt: skip
def test_a_table_has_few_enough_rows(bounded: RankerSettings, spelled_out: RankerSettings) -> None:
    """Five graphs share them evenly."""
    found, expected = (
        ranker.build(0).fit(GRAPHS[:5], []).predict(GRAPHS[5]) for ranker in (bounded, spelled_out)
    )
    np.testing.assert_array_equal(found, expected)


def test_a_cost_model_learns_from_the_configurations_that_are_predicted() -> None:
    """So one state table of a graph serves both."""
    graph = make_layout_graph(configs=40)
    predicted = graph.select(choose_configs(graph.key, 40, 10))
    rows = choose_predicted(graph, 10)
    assert (rows.graph.layouts.expand() == predicted.layouts.expand()).all()
    assert rows.runtimes == pytest.approx(predicted.distinct.mean(predicted.runtimes))
    for limit in (40, None):
        assert choose_predicted(graph, limit).graph is graph
