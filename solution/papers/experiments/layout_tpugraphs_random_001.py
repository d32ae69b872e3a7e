"""The layout baseline of TpuGraphs, learning from 1,000 random nodes of each graph."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.nodes import NodeSettings
from solution.papers.tpugraphs import TpuGraphsSettings

EXPERIMENT = Experiment(
    name="layout_tpugraphs_random_001",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(segment=None, nodes=NodeSettings(trained=1000)),
)
