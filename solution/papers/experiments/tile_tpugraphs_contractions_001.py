"""The tile baseline of TpuGraphs, with the contracted dimensions of dots as features."""

import dataclasses

from solution.papers.experiments.tile_tpugraphs_sage_early_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="tile_tpugraphs_contractions_001",
    ranker=PreparedSettings(USUAL.ranker, contractions=True),
)
