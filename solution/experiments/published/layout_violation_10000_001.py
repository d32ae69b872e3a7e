"""Attention over a soft adjacency with the violation ratio, 10,000 random nodes: for a GPU."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.papers.nodes import NodeSettings
from solution.models.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_10000_001",
    collections=LAYOUT,
    ranker=ViolationSettings(nodes=NodeSettings(trained=10_000, scored=10_000)),
)
