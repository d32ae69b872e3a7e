"""The baseline with attention and the violation ratio, without the adjacency mask."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_unmasked_001",
    collections=LAYOUT,
    ranker=ViolationSettings(mask=None),
)
