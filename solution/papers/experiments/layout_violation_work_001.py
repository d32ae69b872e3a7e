"""Nodes drawn by the operations they compute; else as layout_violation_001."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_work_001",
    collections=LAYOUT,
    ranker=ViolationSettings(nodes=NodeSettings(trained=1000, draw="work")),
)
