"""Our layout net with raw node features instead of logarithms."""

import dataclasses

from solution.experiments.layout_gnn_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL, name="layout_gnn_plain_001", ranker=PreparedSettings(USUAL.ranker, encoding="plain")
)
