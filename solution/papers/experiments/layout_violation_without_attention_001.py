"""The baseline with the violation ratio, without attention."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_without_attention_001",
    collections=LAYOUT,
    ranker=ViolationSettings(attention=None),
)
