"""The layout baseline of TpuGraphs with raw node features instead of logarithms."""

import dataclasses

from solution.papers.experiments.layout_tpugraphs_001 import EXPERIMENT as USUAL
from solution.papers.prepared import PreparedSettings

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="layout_tpugraphs_plain_001",
    ranker=PreparedSettings(USUAL.ranker, encoding="plain"),
)
