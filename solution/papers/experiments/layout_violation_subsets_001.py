"""As layout_violation_001, predicting from eight subsets of 1,000 nodes: for a CPU."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_subsets_001",
    collections=LAYOUT,
    ranker=ViolationSettings(nodes=NodeSettings(trained=1000, scored=1000, subsets=8)),
)
