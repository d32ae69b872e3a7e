"""Segment training with the table of embeddings and no dropout."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.segment_training import SegmentSettings

EXPERIMENT = Experiment(
    name="layout_segments_table_001",
    collections=LAYOUT,
    ranker=SegmentSettings(max_nodes=32, kept=1.0),
)
