"""The baseline of a student report: neither attention nor the violation ratio."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_baseline_001",
    collections=LAYOUT,
    ranker=ViolationSettings(attention=None, ratio=False),
)
