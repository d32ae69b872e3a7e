"""The baseline with attention and the violation ratio, as a student report submitted it."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_001",
    collections=LAYOUT,
    ranker=ViolationSettings(),
)
