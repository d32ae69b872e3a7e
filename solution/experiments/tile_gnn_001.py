"""The tile net; kernels are small, so many go into a step."""

from solution.collection import TILE
from solution.experiments.base import Experiment
from solution.models.tile_gnn import TileGnnSettings
from solution.models.training import TrainingSettings

EXPERIMENT = Experiment(
    name="tile_gnn_001",
    collections=TILE,
    ranker=TileGnnSettings(training=TrainingSettings(graphs_per_step=16)),
)
