"""The tile baseline of TpuGraphs with unused slots at 0, as in the files."""

import dataclasses

from solution.papers.experiments.tile_tpugraphs_sage_early_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL, name="tile_tpugraphs_padding_0_001", ranker=PreparedSettings(USUAL.ranker, padding=0)
)
