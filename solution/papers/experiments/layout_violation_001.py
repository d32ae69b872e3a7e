"""The baseline with attention in front and the violation ratio, as a student report sent it in."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_001",
    collections=LAYOUT,
    ranker=ViolationSettings(),
)
