"""The baseline with attention and the violation ratio, 10,000 nodes, 32 configs: for a GPU."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_10000_001",
    collections=LAYOUT,
    ranker=ViolationSettings(
        nodes=NodeSettings(trained=10_000),
        training=TrainingSettings(configs_per_graph=32, max_configs=None, chosen_by="opa"),
    ),
)
