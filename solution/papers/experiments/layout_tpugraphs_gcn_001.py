"""The layout baseline of TpuGraphs with graph convolutions."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_gcn_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(block="gcn"),
)
