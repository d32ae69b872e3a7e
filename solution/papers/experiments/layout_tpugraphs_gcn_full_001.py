"""The layout baseline of TpuGraphs with graph convolutions, full graph training."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_gcn_full_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(block="gcn", segment=None),
)
