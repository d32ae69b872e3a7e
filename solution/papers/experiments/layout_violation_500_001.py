"""The baseline with attention and the violation ratio, 500 random nodes, 16 configurations."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_500_001",
    collections=LAYOUT,
    ranker=ViolationSettings(nodes=NodeSettings(trained=500)),
)
