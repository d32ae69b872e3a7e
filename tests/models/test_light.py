"""Nets predict without torch what they predict with it."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment, list_experiments
from solution.features.preparation import Preparation
from solution.models import catalogue
from solution.models.base import RankerSettings
from solution.models.catalogue import (
    KINDS,
    describe_settings,
    kind_of,
    load_model,
    read_settings,
    save_model,
)
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.light import load_light
from solution.models.linear import OrdinarySettings, RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nothing import NothingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.models.trees.boosted_trees import Tree, parse_forest, read_forest
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from tests.made.graphs import make_layout_graph, make_tile_graph
from tests.made.position_ranker import PositionSettings

NET = TrainingSettings(epochs=2, configs_per_graph=8)
NETS = [
    (LayoutGnnSettings(width=16, rounds=(32, 16), training=NET), make_layout_graph),
    (LayoutGnnSettings(width=16, rounds=(16,), pruning="virtual", training=NET),
     make_layout_graph),
    (TileGnnSettings(width=16, training=NET), make_tile_graph),
]  # fmt: skip


def save(settings: RankerSettings, make: Callable[..., Graph], folder: Path) -> Path:
    prepare = Preparation(settings.needed_hops)
    graphs = [prepare(make(seed, configs=20, name=f"graph_{seed}")) for seed in range(4)]
    save_model(settings.build(1).fit(graphs, []), settings, 1, folder)
    return folder


@pytest.mark.parametrize(("settings", "make"), NETS)
def test_the_scores_of_torch_but_for_rounding(
    settings: RankerSettings, make: Callable[..., Graph], tmp_path: Path
) -> None:
    full, light = load_model(save(settings, make, tmp_path)), load_light(tmp_path)
    assert light.preparation == full.preparation
    for seed in range(5, 9):
        graph = make(seed, configs=40)
        prepared = light.preparation(graph)
        found, expected = light.ranker.predict(prepared), full.predict(graph)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        assert np.array_equal(found, light.ranker.predict(prepared))


def test_a_program_with_nothing_to_configure_has_equal_scores(tmp_path: Path) -> None:
    folder, graph = save(*NETS[0], tmp_path), make_layout_graph(6, configs=30)
    bare = dataclasses.replace(
        graph, configurable=graph.configurable[:0], configs=encode(graph.layouts.expand()[:, :0])
    )
    for model in (load_model(folder), load_light(folder).ranker):
        scores = model.predict(bare)
        assert scores.shape == (30,)
        assert len(set(scores.tolist())) == 1


def test_a_net_without_a_list_of_its_own_scores_beside_one(tmp_path: Path) -> None:
    light = load_light(save(*NETS[0], tmp_path))
    graph = light.preparation(make_layout_graph(6, configs=30))
    listed = np.arange(30) < 20
    beside = light.ranker.predict(dataclasses.replace(graph, listed=listed))
    alone = light.ranker.predict(graph.select(np.arange(20)))
    np.testing.assert_allclose(beside[:20], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("settings", "error", "words"), [
    (OrdinarySettings(), InputError, "least_squares.*expected.*layout_net.*tile_net"),
    (TileGnnSettings(width=16, heads=2, training=NET), ValueError, "'heads': 2"),
])  # fmt: skip
def test_what_is_not_computed_here_is_refused(
    settings: RankerSettings, error: type[Exception], words: str, tmp_path: Path
) -> None:
    save(settings, make_tile_graph, tmp_path)
    with pytest.raises(error, match=words):
        load_light(tmp_path)


def train(objective: str, leaves: int = 7, rows: int = 200) -> lightgbm.Booster:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(rows, 5))
    labels = (features @ generator.normal(size=5) > 0).astype(float)
    parameters = {"objective": objective, "num_leaves": leaves, "verbosity": -1, "metric": "none"}
    group = [rows // 2, rows - rows // 2] if objective == "lambdarank" else None
    dataset = lightgbm.Dataset(features, labels, group=group)
    return lightgbm.train(parameters, dataset, num_boost_round=9)


def walk(tree: Tree, row: np.ndarray) -> float:
    """The value of a tree for one row, one comparison after the other."""
    node = 0 if len(tree.feature) else -1
    while node >= 0:
        goes_left = row[tree.feature[node]] <= tree.threshold[node]
        node = int((tree.left if goes_left else tree.right)[node])
    return float(tree.value[~node])


@pytest.mark.parametrize("objective", ["lambdarank", "regression", "binary"])
def test_the_same_predictions_and_contributions(objective: str, tmp_path: Path) -> None:
    booster = train(objective)
    booster.save_model(tmp_path / "model.txt")
    found = read_forest(tmp_path / "model.txt")
    again = lightgbm.Booster(model_str=found.text)
    rows = np.random.default_rng(1).normal(size=(50, 5))
    for options in ({}, {"raw_score": True}, {"pred_contrib": True}):
        expected = booster.predict(rows, **options)
        assert np.array_equal(again.predict(rows, **options), expected)
    sums = [sum(walk(tree, row) for tree in found.trees) for row in rows]
    np.testing.assert_allclose(sums, booster.predict(rows, raw_score=True), rtol=1e-12)
    assert found.columns == 5
    assert "[" not in found.text  # nothing of the parameters is left


def test_trees_without_a_split_are_read() -> None:
    text = train("regression", rows=10).model_to_string()  # too few rows to divide
    assert [len(tree.value) for tree in parse_forest(text).trees] == [1] * text.count("Tree=")


@pytest.mark.parametrize("content", [b"", b"tree\n", b"\xff\xfe", b"tree\nend of trees\n\n"])
def test_other_text_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_bytes(content)
    with pytest.raises(InputError, match="LightGBM writes"):
        read_forest(tmp_path / "model.txt")
    with pytest.raises(InputError, match="such file"):
        read_forest(tmp_path / "none.txt")


def test_any_byte_may_be_another(tmp_path: Path) -> None:
    """A changed character is refused, or LightGBM bears it."""
    text = train("regression", leaves=4).model_to_string()
    generator = np.random.default_rng(2)
    for _ in range(300):
        place = int(generator.integers(text.index("end of trees")))
        changed = text[:place] + chr(generator.integers(32, 127)) + text[place + 1 :]
        try:
            found = parse_forest(changed)
        except ValueError:
            continue
        lightgbm.Booster(model_str=found.text).predict(np.zeros((1, found.columns)))


@pytest.mark.parametrize("name", list_experiments())
def test_the_settings_of_every_experiment_come_back(name: str) -> None:
    settings = find_experiment(name).ranker
    assert kind_of(settings) in KINDS
    described = json.loads(json.dumps(describe_settings(settings)))
    assert read_settings(described) == settings


def test_every_kind_of_the_table_is_there() -> None:
    for kind in KINDS:
        found = catalogue._find_class(kind, ())
        assert issubclass(found, RankerSettings)
        assert catalogue._PATHS[kind].endswith(found.__qualname__)


def test_a_kind_of_the_users_own_needs_the_experiment(tmp_path: Path) -> None:
    save(PositionSettings(), make_tile_graph, tmp_path)
    with pytest.raises(InputError, match="PositionSettings"):
        load_model(tmp_path)
    model = load_model(tmp_path, [PositionSettings()])
    assert (model.settings, model.seed) == (PositionSettings(), 1)


@dataclass(frozen=True)
class FolderSettings(NothingSettings):
    """Settings that no file can hold."""

    folder: Path = Path()


def test_settings_that_are_no_plain_values_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(InputError, match="expected settings"):
        describe_settings(FolderSettings())


@pytest.mark.parametrize(("change", "words"), [
    ({"kind": "os.system"}, "not known"), ({"kind": None}, "not known"),
    ({"settings": {}}, "expected the"), ({"settings": []}, "expected the"),
    ({"format": 9}, "has format 9"), ({"preparation": {"version": 0, "hops": 1}}, "Train it"),
    ({"seed": "zero"}, "Train it"), ({"files": {"../secret": "0"}}, "inside its"),
    ({"files": {"/etc/passwd": "0"}}, "inside its"), ({"files": None}, "checksums"),
])  # fmt: skip
def test_another_record_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    save(RidgeSettings(), make_tile_graph, tmp_path)
    path = tmp_path / catalogue.RECORD
    write_sealed(read_sealed(path, "a model") | change, path)
    with pytest.raises(InputError, match=words):
        load_model(tmp_path)


def test_a_model_prepares_what_it_ranks(tmp_path: Path) -> None:
    """The whole graph, one that keeps two hops and the one it learned from are ranked alike."""
    graphs = [make_layout_graph(seed, configs=10, name=f"p{seed}") for seed in range(4)]
    prepared = [Preparation(1)(graph) for graph in graphs]
    trees = LightGBMSettings(rounds=5, min_data_in_leaf=2)
    save_model(trees.build(0).fit(prepared[:3], []), trees, 0, tmp_path)
    model = load_model(tmp_path)
    expected = model.ranker.predict(prepared[3])
    for graph in (graphs[3], Preparation(2)(graphs[3]), Preparation(None)(graphs[3]), prepared[3]):
        np.testing.assert_array_equal(model.predict(graph), expected)
