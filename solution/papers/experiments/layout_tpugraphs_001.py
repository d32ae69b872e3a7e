"""The layout baseline of TpuGraphs: whole graphs, the gradient through 1,000 nodes."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(),
)
