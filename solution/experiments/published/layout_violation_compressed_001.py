"""Attention over a soft adjacency, 30 features of 5,000 random nodes: for a GPU."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.papers.nodes import NodeSettings
from solution.models.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_compressed_001",
    collections=LAYOUT,
    ranker=ViolationSettings(features=30, nodes=NodeSettings(trained=5000, scored=5000)),
)
