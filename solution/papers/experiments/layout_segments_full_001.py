"""The net of layout_segments_001 trained on full graphs, as the reference for segment training."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.segment_training import SegmentSettings

EXPERIMENT = Experiment(
    name="layout_segments_full_001",
    collections=LAYOUT,
    ranker=SegmentSettings(max_nodes=None, head_epochs=0),
)
