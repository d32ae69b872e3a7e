"""Experiments of graph segment training.

The paper's segments have 1,000 nodes. The bundled programs, pruned, have a twentieth of the nodes
of TpuGraphs' programs, so segments have 32 nodes here (max_nodes=None: the whole graph). With
hops=None graphs are not pruned.
"""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.segment_training import SegmentSettings

EXPERIMENTS = (
    Experiment(name="layout_segments_001", collections=LAYOUT,
               about="Segment training on the four layout collections.",
               ranker=SegmentSettings(max_nodes=32)),
    Experiment(name="layout_segments_anew_001", collections=LAYOUT,
               about="Segment training without a table: the segments not chosen are recomputed.",
               ranker=SegmentSettings(max_nodes=32, table_megabytes=None)),
    Experiment(name="layout_segments_full_001", collections=LAYOUT,
               about="The net of layout_segments_001 trained on full graphs, as the reference for "
                     "segment training.",
               ranker=SegmentSettings(max_nodes=None, head_epochs=0)),
    Experiment(name="layout_segments_table_001", collections=LAYOUT,
               about="Segment training with the table of embeddings and no dropout.",
               ranker=SegmentSettings(max_nodes=32, kept=1.0)),
)  # fmt: skip
