"""The tile net with dimension tokens and attention across configurations."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings

EXPERIMENT = Experiment(
    name="tile_gnn_rivals_001",
    collections=TILE,
    ranker=TileGnnSettings(
        tokens=True,
        heads=4,
        dropout=0.3,
        training=TrainingSettings(graphs_per_step=16, weight_decay=1e-2),
    ),
)
