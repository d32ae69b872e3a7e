"""The tile net with a checkpoint after every epoch, so that a killed fit has one."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets import checkpoint
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings

checkpoint.SECONDS_BETWEEN = 0.0

EXPERIMENT = Experiment(
    name="quick_checkpoints",
    collections=TILE,
    ranker=TileGnnSettings(
        width=16, training=TrainingSettings(epochs=24, patience=None, configs_per_graph=8)
    ),
)
