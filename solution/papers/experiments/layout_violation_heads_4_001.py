"""The baseline with four heads of attention instead of 16, and the violation ratio."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_heads_4_001",
    collections=LAYOUT,
    ranker=ViolationSettings(heads=4),
)
