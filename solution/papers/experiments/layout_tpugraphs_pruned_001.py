"""The layout baseline of TpuGraphs on pruned graphs."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_pruned_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(segment=None, nodes=NodeSettings(pruning="neighbourhood")),
)
