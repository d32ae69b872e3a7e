"""A small run with a model of every kind that can be packed, and its bundle; made once."""

from pathlib import Path

import pytest

from ensembles.recipe import Recipe
from solution.data.folders import find_files
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.layout.cost_kernel import CostKernelSettings
from solution.models.layout.cost_net import CostNetSettings
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import LassoSettings, OrdinarySettings, RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nothing import NothingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings, PointwiseSettings
from solution.papers.prepared import ContractionSettings, PreparedSettings
from solution.papers.residual import ResidualSettings, ResidualTileSettings
from solution.papers.segment_training import SegmentSettings
from solution.papers.study import (
    StudyLassoSettings,
    StudyOrdinarySettings,
    StudyRidgeSettings,
    StudyTreeSettings,
)
from solution.papers.tgraph import TGraphSettings
from solution.papers.tpugraphs import TpuGraphsSettings, TpuGraphsTileSettings
from solution.papers.violation import ViolationSettings
from solution.papers.wrappers import SublistAverageSettings
from solution.runs.folder import Run
from solution.serving.packing import pack
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.training.executors.local import LocalExecutor
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

LAYOUT, TILE = "layout:xla:random", "tile:xla"

NET = TrainingSettings(epochs=1, configs_per_graph=8, graphs_per_step=4, validation_configs=8)
TREES = LightGBMSettings(rounds=3, min_data_in_leaf=2)
BOTH: dict[str, RankerSettings] = {"nothing": NothingSettings(), "lambdarank": TREES}
OF_LAYOUTS: dict[str, RankerSettings] = {
    "pointwise": PointwiseSettings(rounds=3, min_data_in_leaf=2),
    "ridge": RidgeSettings(max_configs=8, grid=(1.0,)),
    "layout_net": LayoutGnnSettings(width=8, rounds=(8,), training=NET),
    "tpugraphs": TpuGraphsSettings(width=8, rounds=1, training=NET),
    "tgraph": TGraphSettings(width=16, training=NET),
    "residual": ResidualSettings(width=8, rounds=1, training=NET),
    "segment_training": SegmentSettings(
        width=8, rounds=1, max_nodes=4, head_epochs=1, partition="topological", training=NET
    ),
    "violation": ViolationSettings(width=8, rounds=1, training=NET),
    "prepared": PreparedSettings(
        LayoutGnnSettings(width=8, rounds=(8,), training=NET), padding=0, contractions=True
    ),
    "contraction_trees": ContractionSettings(rounds=3, min_data_in_leaf=2),
    "cost_net": CostNetSettings(width=8, training=NET),
    "cost_kernel": CostKernelSettings(cosines=8),
}
OF_TILES: dict[str, RankerSettings] = {
    "least_squares": OrdinarySettings(max_configs=8),
    "lasso": LassoSettings(max_configs=8, grid=(0.01,)),
    "sublist_average": SublistAverageSettings(TREES, times=2, size=5),
    "tile_net": TileGnnSettings(width=8, blocks=1, training=NET),
    "tpugraphs_tile": TpuGraphsTileSettings(width=8, rounds=1, training=NET),
    "residual_tile": ResidualTileSettings(width=8, rounds=1, training=NET),
    "study_trees": StudyTreeSettings(rounds=3, min_data_in_leaf=2, trials=0),
    "study_least_squares": StudyOrdinarySettings(max_configs=8),
    "study_ridge": StudyRidgeSettings(max_configs=8, grid=(1.0,)),
    "study_lasso": StudyLassoSettings(max_configs=8, grid=(0.01,)),
}
KINDS = {
    name: Experiment(name, collections, settings, seeds=(0, 1) if name == "lambdarank" else (0,))
    for collections, kinds in (((LAYOUT, TILE), BOTH), ((LAYOUT,), OF_LAYOUTS), ((TILE,), OF_TILES))
    for name, settings in kinds.items()
}
RECIPE = Recipe(
    name="small",
    method="z_score",
    members={"lambdarank": 2.0, "layout_net": 1.0, "tile_net": 1.0},
    fallback="nothing",
)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of graphs that are learned from, and two of each kind that are not."""
    folder = tmp_path_factory.mktemp("data")
    for seed in range(8):
        split = "train" if seed < 6 else "test"
        names = ("alone", "lone") if seed == 5 else (f"program_{seed}", f"kernel_{seed}")
        write_graph(make_layout_graph(seed, configs=10 + seed, name=names[0]), folder, split)
        write_graph(make_tile_graph(seed, configs=10, name=names[1]), folder, split)
    return folder


@pytest.fixture(scope="session")
def store(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same, prepared: whole, which serves every kind."""
    return prepare_store(find_files(data), tmp_path_factory.mktemp("prepared"), Preparation(None))


@pytest.fixture(scope="session")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of every kind; not to be changed."""
    experiments = list(KINDS.values())
    folder = tmp_path_factory.mktemp("trained") / "run"
    with open_experiments(experiments, store, folder, scheme="graph", folds=2) as (plan, opened):
        run_experiments(find_backlog(experiments, plan, opened), plan, opened, LocalExecutor(1))
    return opened


@pytest.fixture(scope="session")
def bundle_folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's bundle; not to be changed."""
    return pack(run, RECIPE, tmp_path_factory.mktemp("packed") / "bundle")


@pytest.fixture(scope="session")
def bundle_zip(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as one file."""
    return pack(run, RECIPE, tmp_path_factory.mktemp("packed") / "bundle.zip")
