"""The baseline with attention and the violation ratio, 16 graphs a step."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_graphs_16_001",
    collections=LAYOUT,
    ranker=ViolationSettings(
        training=TrainingSettings(
            graphs_per_step=16, configs_per_graph=16, max_configs=None, chosen_by="opa"
        )
    ),
)
