"""The residual net with self-attention, predicting from eight subsets of 100 nodes."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.residual_attention import ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_subsets_001",
    collections=LAYOUT,
    ranker=ResidualSettings(nodes=NodeSettings(trained=100, scored=100, subsets=8)),
)
