"""The layout baseline of TpuGraphs, using the epoch with the most ordered pairs."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_opa_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(
        training=TrainingSettings(chosen_by="opa", configs_per_graph=16, max_configs=None)
    ),
)
