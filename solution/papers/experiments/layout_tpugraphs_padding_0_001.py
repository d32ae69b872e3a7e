"""The layout baseline of TpuGraphs with unused slots at 0, as in the files."""

import dataclasses

from solution.papers.experiments.layout_tpugraphs_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL, name="layout_tpugraphs_padding_0_001", ranker=PreparedSettings(USUAL.ranker, padding=0)
)
