"""The tile baseline of TpuGraphs, told what dots sum over."""

import dataclasses

from solution.experiments.published.tile_tpugraphs_sage_early_001 import EXPERIMENT as USUAL
from solution.models.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="tile_tpugraphs_contractions_001",
    ranker=PreparedSettings(USUAL.ranker, contractions=True),
)
