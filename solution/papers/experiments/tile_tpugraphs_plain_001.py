"""The tile baseline of TpuGraphs with raw node features instead of logarithms."""

import dataclasses

from solution.papers.experiments.tile_tpugraphs_sage_early_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL, name="tile_tpugraphs_plain_001", ranker=PreparedSettings(USUAL.ranker, encoding="plain")
)
