"""Our tile net, with the contracted dimensions of dots as features."""

import dataclasses

from solution.experiments.tile_gnn_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="tile_gnn_contractions_001",
    ranker=PreparedSettings(USUAL.ranker, contractions=True),
)
