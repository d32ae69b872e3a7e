"""The layout baseline of TpuGraphs, with the contracted dimensions of dots as features."""

import dataclasses

from solution.papers.experiments.layout_tpugraphs_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="layout_tpugraphs_contractions_001",
    ranker=PreparedSettings(USUAL.ranker, contractions=True),
)
