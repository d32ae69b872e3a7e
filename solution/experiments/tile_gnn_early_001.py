"""The early-join GraphSAGE baseline of TpuGraphs on the tile table."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import EarlyTileGnnSettings

EXPERIMENT = Experiment(
    name="tile_gnn_early_001",
    collections=TILE,
    ranker=EarlyTileGnnSettings(
        block="sage",
        dropout=0.3,
        training=TrainingSettings(graphs_per_step=16, weight_decay=1e-2),
    ),
)
