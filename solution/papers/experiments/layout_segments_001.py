"""Segment training on the four layout collections.

Segments of 32 nodes, for the bundled programs, pruned, have a twentieth of the nodes of TpuGraphs';
1,000, the default, are as many as the paper's. hops=None trains on whole graphs.
"""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.segment_training import SegmentSettings

EXPERIMENT = Experiment(
    name="layout_segments_001", collections=LAYOUT, ranker=SegmentSettings(max_nodes=32)
)
