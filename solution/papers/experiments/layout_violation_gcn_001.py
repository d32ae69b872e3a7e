"""Graph convolutions with attention before them and the violation ratio."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_gcn_001",
    collections=LAYOUT,
    ranker=ViolationSettings(block="gcn"),
)
