"""The tile baseline of TpuGraphs with GraphSAGE, late join and an element-wise loss."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_sage_late_mse_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(
        training=TrainingSettings(
            loss="mean_squared_error", graphs_per_step=10, configs_per_graph=10
        )
    ),
)
