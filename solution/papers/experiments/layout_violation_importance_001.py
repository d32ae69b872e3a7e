"""Configurable and important nodes kept before random ones; else as layout_violation_001."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_importance_001",
    collections=LAYOUT,
    ranker=ViolationSettings(importance=True),
)
