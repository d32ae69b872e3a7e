"""Our layout net with a virtual node for every connected part that pruning drops."""

import dataclasses

from solution.experiments.layout_gnn_001 import EXPERIMENT as USUAL

EXPERIMENT = dataclasses.replace(
    USUAL,
    name="layout_gnn_virtual_001",
    ranker=dataclasses.replace(USUAL.ranker, pruning="virtual"),  # type: ignore[type-var]
)
