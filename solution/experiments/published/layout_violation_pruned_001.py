"""The baseline with attention and the violation ratio, on pruned graphs."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.papers.nodes import NodeSettings
from solution.models.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_pruned_001",
    collections=LAYOUT,
    ranker=ViolationSettings(nodes=NodeSettings(pruning="neighbourhood", trained=1000)),
)
