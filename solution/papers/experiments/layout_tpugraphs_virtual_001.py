"""The layout baseline of TpuGraphs on pruned graphs with virtual nodes for the dropped parts."""

import dataclasses

from solution.papers.experiments.layout_tpugraphs_pruned_001 import EXPERIMENT as PRUNED
from solution.papers.nodes import NodeSettings

EXPERIMENT = dataclasses.replace(
    PRUNED,
    name="layout_tpugraphs_virtual_001",
    ranker=dataclasses.replace(PRUNED.ranker, nodes=NodeSettings(pruning="virtual")),  # type: ignore[type-var]
)
