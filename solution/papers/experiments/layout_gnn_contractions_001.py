"""Our layout net, with the contracted dimensions of dots as features."""

import dataclasses

from solution.experiments.layout_gnn_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="layout_gnn_contractions_001",
    ranker=PreparedSettings(USUAL.ranker, contractions=True),
)
