"""Attention over a soft adjacency with the violation ratio and nodes of importance."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_importance_001",
    collections=LAYOUT,
    ranker=ViolationSettings(importance=True),
)
