"""The baseline with attention and the violation ratio, twice as wide."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_wide_001",
    collections=LAYOUT,
    ranker=ViolationSettings(width=128),
)
