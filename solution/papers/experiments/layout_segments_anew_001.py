"""Segment training without a table: the segments not chosen are recomputed."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.segment_training import SegmentSettings

EXPERIMENT = Experiment(
    name="layout_segments_anew_001",
    collections=LAYOUT,
    ranker=SegmentSettings(max_nodes=32, table_megabytes=None),
)
