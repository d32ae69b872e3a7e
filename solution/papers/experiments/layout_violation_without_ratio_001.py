"""The baseline with attention before its convolutions, without the violation ratio."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_without_ratio_001",
    collections=LAYOUT,
    ranker=ViolationSettings(ratio=False),
)
