"""Nets predict without torch what they predict with it."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.catalogue import load_model, save_model
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.light import load_light
from solution.models.linear import OrdinarySettings
from solution.models.nets.forward import gelu
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph

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
        graph = make(seed, configs=40, name="new")
        prepared = light.preparation(graph)
        found, expected = light.ranker.predict(prepared), full.predict(graph)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        assert np.array_equal(found, light.ranker.predict(prepared))


def test_a_program_with_nothing_to_configure_has_equal_scores(tmp_path: Path) -> None:
    settings, make = NETS[0]
    folder, graph = save(settings, make, tmp_path), make(6, configs=30)
    bare = dataclasses.replace(
        graph, configurable=graph.configurable[:0], configs=encode(graph.layouts.expand()[:, :0])
    )
    for model in (load_model(folder), load_light(folder).ranker):
        scores = model.predict(bare)
        assert scores.shape == (30,)
        assert len(set(scores.tolist())) == 1


def test_a_net_without_a_list_of_its_own_scores_beside_one(tmp_path: Path) -> None:
    settings, make = NETS[0]
    light = load_light(save(settings, make, tmp_path))
    graph = light.preparation(make(6, configs=30))
    listed = np.arange(30) < 20
    beside = light.ranker.predict(
        Graph(**{**{name: getattr(graph, name) for name in graph.__dataclass_fields__},
                 "listed": listed})
    )  # fmt: skip
    alone = light.ranker.predict(graph.select(np.arange(20)))
    np.testing.assert_allclose(beside[:20], alone, rtol=1e-4, atol=1e-5)


def test_gelu_is_that_of_torch() -> None:
    x = np.linspace(-12, 12, 100_001, dtype=np.float32).reshape(-1, 1)
    expected = functional.gelu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(gelu(x), expected, rtol=0, atol=2e-6)


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    save(OrdinarySettings(), make_tile_graph, tmp_path)
    with pytest.raises(InputError, match="'least_squares', expected one of layout_net, tile_net"):
        load_light(tmp_path)


def test_a_tile_net_that_is_not_computed_here_is_refused(tmp_path: Path) -> None:
    save(TileGnnSettings(width=16, heads=2, training=NET), make_tile_graph, tmp_path)
    with pytest.raises(ValueError, match="'heads': 2"):
        load_light(tmp_path)


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from solution.models.light import load_light\n"
        "for folder in sys.argv[1:]: load_light(Path(folder))\n"
        "print(sorted({'torch', 'lightgbm', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    folders = [tmp_path / "layout", tmp_path / "tile"]
    for folder, (settings, make) in zip(folders, (NETS[0], NETS[2]), strict=True):
        folder.mkdir()
        save(settings, make, folder)
    called = [sys.executable, "-c", code, *map(str, folders)]
    done = subprocess.run(called, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
