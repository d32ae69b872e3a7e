"""The tile net, trained only a little, for tests."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings

EXPERIMENT = Experiment(
    name="quick_tile_gnn",
    collections=TILE,
    ranker=TileGnnSettings(width=16, training=TrainingSettings(epochs=2, configs_per_graph=8)),
    seeds=(0, 1),
)
