"""The tile baseline of TpuGraphs, GraphSAGE joined early, with both of its published losses."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_sage_early_blend_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(
        join="early",
        training=TrainingSettings(
            loss="list_mle", regression=0.02, graphs_per_step=10, configs_per_graph=10
        ),
    ),
)
