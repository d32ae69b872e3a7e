"""The late-join GraphSAGE baseline of TpuGraphs on the tile table."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings

EXPERIMENT = Experiment(
    name="tile_gnn_sage_001",
    collections=TILE,
    ranker=TileGnnSettings(
        block="sage",
        dropout=0.3,
        training=TrainingSettings(graphs_per_step=16, min_steps=10, weight_decay=1e-2),
    ),
)
