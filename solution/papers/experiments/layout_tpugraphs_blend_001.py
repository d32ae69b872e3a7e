"""The layout baseline of TpuGraphs with squared error of runtimes beside its ranking loss."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_blend_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(
        training=TrainingSettings(regression=0.02, configs_per_graph=16, max_configs=None)
    ),
)
