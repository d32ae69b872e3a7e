"""The residual net of a student report with self-attention, on pruned graphs, its future work."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.residual_attention import ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_pruned_001",
    collections=LAYOUT,
    ranker=ResidualSettings(nodes=NodeSettings(pruning="neighbourhood", trained=100)),
)
