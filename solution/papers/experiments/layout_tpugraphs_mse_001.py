"""The layout baseline of TpuGraphs with an element-wise loss."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_mse_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(
        training=TrainingSettings(loss="mean_squared_error", configs_per_graph=16, max_configs=None)
    ),
)
