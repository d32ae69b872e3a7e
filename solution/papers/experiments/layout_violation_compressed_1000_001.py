"""The baseline with attention and the violation ratio, 30 features of 1,000 random nodes."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_compressed_1000_001",
    collections=LAYOUT,
    ranker=ViolationSettings(compressed=True),
)
