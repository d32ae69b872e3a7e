"""The baseline with attention and the violation ratio, on pruned graphs."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_pruned_001",
    collections=LAYOUT,
    ranker=ViolationSettings(nodes=NodeSettings(pruning="neighbourhood", trained=1000)),
)
