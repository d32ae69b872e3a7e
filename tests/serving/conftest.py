"""A small run with a model of every kind that can be packed, and its bundle; made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from pydoc import locate
from typing import Any

import pytest

from ensembles.merge import alone
from ensembles.recipe import Recipe
from solution import load_bundle
from solution.data.folders import find_files
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.catalogue import OURS
from solution.models.nets.training_settings import TrainingSettings
from solution.papers import KINDS as PUBLISHED
from solution.runs.folder import Run
from solution.serving.bundle import Bundle
from solution.serving.packing import pack
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.training.executors.local import LocalExecutor
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

LAYOUT, TILE = "layout:xla:random", "tile:xla"


def make(kind: str, **fields: Any) -> RankerSettings:
    """The settings of a kind, of which the tables have the path of the class."""
    return locate((OURS | PUBLISHED)[kind])(**fields)  # type: ignore[operator, no-any-return]


TRAINING = TrainingSettings(epochs=1, configs_per_graph=8, graphs_per_step=4, validation_configs=8)
NET = {"width": 8, "rounds": 1, "training": TRAINING}
LAYOUT_NET = NET | {"rounds": (8,)}
TREES, FEW = {"rounds": 3, "min_data_in_leaf": 2}, {"max_configs": 8}
RIDGE, LASSO = FEW | {"grid": (1.0,)}, FEW | {"grid": (0.01,)}
SEGMENTS = NET | {"max_nodes": 4, "head_epochs": 1, "partition": "topological"}
PREPARED = {"ranker": make("layout_net", **LAYOUT_NET), "padding": 0, "contractions": True}
BOTH: dict[str, dict[str, Any]] = {"nothing": {}, "lambdarank": TREES}
OF_LAYOUTS: dict[str, dict[str, Any]] = {
    "pointwise": TREES, "contraction_trees": TREES, "ridge": RIDGE, "layout_net": LAYOUT_NET,
    "tpugraphs": NET, "residual": NET, "violation": NET, "segment_training": SEGMENTS,
    "tgraph": {"width": 16, "training": TRAINING}, "cost_net": {"width": 8, "training": TRAINING},
    "prepared": PREPARED, "cost_kernel": {"cosines": 8},
}  # fmt: skip
OF_TILES: dict[str, dict[str, Any]] = {
    "least_squares": FEW, "study_least_squares": FEW, "lasso": LASSO, "study_lasso": LASSO,
    "study_ridge": RIDGE, "study_trees": TREES | {"trials": 0}, "tpugraphs_tile": NET,
    "residual_tile": NET, "tile_net": {"width": 8, "blocks": 1, "training": TRAINING},
    "sublist_average": {"ranker": make("lambdarank", **TREES), "times": 2, "size": 5},
}  # fmt: skip
KINDS = {
    name: Experiment(name, where, make(name, **fields), (0, 1) if name == "lambdarank" else (0,))
    for where, kinds in (((LAYOUT, TILE), BOTH), ((LAYOUT,), OF_LAYOUTS), ((TILE,), OF_TILES))
    for name, fields in kinds.items()
}
MEMBERS = {"lambdarank": 2.0, "layout_net": 1.0, "tile_net": 1.0}
RECIPE = Recipe(name="small", method="z_score", members=MEMBERS, fallback="nothing")


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
    return train(list(KINDS.values()), store, tmp_path_factory.mktemp("trained") / "run")


def train(experiments: list[Experiment], store: Store, folder: Path, **options: Any) -> Run:
    """A run of two folds, in this process."""
    options = {"scheme": "graph", "folds": 2, **options}
    with open_experiments(experiments, store, folder, **options) as (plan, run):
        run_experiments(find_backlog(experiments, plan, run), plan, run, LocalExecutor(1))
    return run


@pytest.fixture(scope="session")
def kinds(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """By the name of a kind, its bundle, which is packed once."""
    folder = tmp_path_factory.mktemp("kinds")
    return cache(lambda name: load_bundle(pack(run, alone(name), folder / name)))


@pytest.fixture(scope="session")
def bundle_folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's bundle; not to be changed."""
    return pack(run, RECIPE, tmp_path_factory.mktemp("packed") / "bundle")


@pytest.fixture(scope="session")
def bundle_zip(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as one file."""
    return pack(run, RECIPE, tmp_path_factory.mktemp("packed") / "bundle.zip")
