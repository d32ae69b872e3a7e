"""The switches of the preparation reach the ranker, from a file as from a store."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.nodes import compress, expand
from solution.features.preparation import VERSION, Preparation
from solution.models.catalogue import RECORD, load_model, save_model
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.prepared import PreparedSettings
from solution.papers.wrappers import SublistAverageSettings
from solution.store.preparation import check_preparation
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.plan import make_plan
from tests.made.graphs import make_layout_graph

TRAINING = TrainingSettings(epochs=2, patience=None, graphs_per_step=2, configs_per_graph=8)
NET = LayoutGnnSettings(width=16, rounds=(16,), training=TRAINING)
GRAPHS = [make_layout_graph(seed, configs=12, name=f"program_{seed}") for seed in range(4)]
COLLECTION = "layout:xla:random"


def numbers(graph: Graph) -> np.ndarray:
    """All columns (nodes, columns) that number dimensions."""
    parts = [graph.node_features[:, columns] for columns in vocabulary.DIMENSION_NUMBERS]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("padding", [-1, 0])
def test_a_store_serves_either_padding(sample_store: Store, padding: int) -> None:
    settings = PreparedSettings(NET, padding=padding)
    plan = make_plan(sample_store, "architecture", 2)
    row = plan.rows(COLLECTION)[:1]
    (graph,) = plan.load(row, settings)
    name = row["graph"].item()
    (file,) = [
        f for f in find_files(SAMPLE) if f.path.stem == name and f.collection.name == COLLECTION
    ]
    fresh = settings.preparation(read_graph(file.path, file.collection))
    np.testing.assert_array_equal(graph.node_features, fresh.node_features)
    assert numbers(graph).min() == padding
    usual = Preparation(1)(read_graph(file.path, file.collection))
    np.testing.assert_array_equal(numbers(graph), np.maximum(numbers(usual), padding))


def test_a_preparation_says_only_what_is_not_usual() -> None:
    assert Preparation().describe() == {"version": VERSION, "hops": 1}
    told = PreparedSettings(NET, padding=0, contractions=True).preparation.describe()
    assert told == {"version": VERSION, "hops": 1, "padding": 0, "contractions": True}
    listed = SublistAverageSettings(PreparedSettings(NET, padding=0))
    assert listed.preparation == Preparation(1, padding=0)


def test_a_saved_model_brings_its_preparation(tmp_path: Path) -> None:
    settings = PreparedSettings(NET, padding=0, contractions=True, encoding="plain")
    prepared = [settings.preparation(graph) for graph in GRAPHS]
    save_model(settings.build(0).fit(prepared[:3], []), settings, 0, tmp_path)
    model = load_model(tmp_path)
    assert model.settings == settings
    expected = settings.build(0).fit(prepared[:3], []).predict(prepared[3])
    np.testing.assert_array_equal(model.predict(GRAPHS[3]), expected)
    record = json.loads((tmp_path / RECORD).read_text(encoding="utf-8"))
    assert record["preparation"] == settings.preparation.describe()


def test_every_switch_changes_what_is_learned() -> None:
    usual = [Preparation(1)(graph) for graph in GRAPHS]
    scores = [NET.build(0).fit(usual[:3], []).predict(usual[3])]
    for switch in ({"padding": 0}, {"contractions": True}, {"encoding": "plain"}):
        settings = PreparedSettings(NET, **switch)  # type: ignore[arg-type]
        prepared = [settings.preparation(graph) for graph in GRAPHS]
        scores.append(settings.build(0).fit(prepared[:3], []).predict(prepared[3]))
        assert np.isfinite(scores[-1]).all()
    for one in range(len(scores)):
        for other in range(one):
            assert not np.array_equal(scores[one], scores[other])


def test_the_plain_encoding_is_of_the_values_themselves() -> None:
    values = np.array([0, -1, 5, 128, 3e8, -7])
    np.testing.assert_allclose(expand(compress(values)), values, rtol=1e-9)
    graph = Preparation(1)(GRAPHS[0])
    ranker = PreparedSettings(NET, encoding="plain").build(0)
    numeric = ranker._encoded(graph).numeric.numpy()[:, : vocabulary.NUM_NODE_FEATURES]
    np.testing.assert_allclose(numeric, graph.node_features, rtol=1e-4, atol=1e-5)


def test_what_no_ranker_could_do_is_refused() -> None:
    with pytest.raises(InputError, match="encoding is 'logs', expected one of logarithms, plain"):
        PreparedSettings(NET, encoding="logs")
    with pytest.raises(InputError, match="padding is 3, expected a number from -1 to 0"):
        PreparedSettings(NET, padding=3)
    with pytest.raises(InputError, match="LinearRanker is no net"):
        PreparedSettings(RidgeSettings(), encoding="plain").build(0)


def test_a_store_whose_padding_was_erased_is_refused() -> None:
    described = Preparation(1, padding=0).describe()
    with pytest.raises(InputError, match="was prepared with {'padding': 0}"):
        check_preparation(described, 1, Path("stores/mine"))
    check_preparation(Preparation(1).describe(), 1, Path("stores/mine"))


def test_graphs_that_are_read_otherwise_are_kept_apart(sample_store: Store) -> None:
    plan = make_plan(sample_store, "architecture", 2)
    rows = plan.graphs.filter(pl.col("collection") == COLLECTION)[:1]
    usual = plan.load(rows, NET)[0]
    erased = plan.load(rows, PreparedSettings(NET, padding=0))[0]
    assert plan.load(rows, NET)[0] is usual
    assert dataclasses.asdict(Preparation(1)) != dataclasses.asdict(Preparation(1, padding=0))
    assert not np.array_equal(usual.node_features, erased.node_features)
