"""The baseline with attention and the violation ratio, 1,000 random nodes, 32 configurations."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_configs_32_001",
    collections=LAYOUT,
    ranker=ViolationSettings(
        nodes=NodeSettings(trained=1000),
        training=TrainingSettings(configs_per_graph=32, max_configs=None, chosen_by="opa"),
    ),
)
