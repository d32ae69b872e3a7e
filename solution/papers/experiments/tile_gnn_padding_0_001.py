"""Our tile net with unused slots at 0, as in the files."""

import dataclasses

from solution.experiments.tile_gnn_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL, name="tile_gnn_padding_0_001", ranker=PreparedSettings(USUAL.ranker, padding=0)
)
