"""The baseline with attention and the violation ratio, 30 features of 5,000 nodes: for a GPU."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENT = Experiment(
    name="layout_violation_compressed_001",
    collections=LAYOUT,
    ranker=ViolationSettings(compressed=True, nodes=NodeSettings(trained=5000)),
)
