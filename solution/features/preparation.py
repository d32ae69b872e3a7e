"""Prepare every graph before a ranker sees it: repair the padding, prune.

Both depend on the graph alone, so they are done once and kept in the store. Preparing a graph of a
store that kept as many hops, or more, gives the same graph as preparing the file. So a model that
carries its preparation ranks a graph alike, wherever it comes from.

Two switches test findings of the competition's participants: unused slots may hold 0, as in the
files, instead of -1; and dots may list the dimensions that they contract. Like pruning, both apply
to the graphs of a store, so one store serves models with them and without.
"""

from dataclasses import dataclass
from typing import Any

from solution.domain.graph import Graph
from solution.features.contractions import mark_contractions
from solution.features.padding import PADDING, erase_padding, repair_padding
from solution.features.pruning import keep_neighbourhood

VERSION = 1  # increase it when the same files are prepared differently


@dataclass(frozen=True)
class Preparation:
    """Turn the graph of a file into the graph that rankers are given."""

    hops: int | None = 1  # kept around the configurable nodes of a layout graph; None: all nodes
    padding: int = PADDING  # value of unused slots of dimension numbers: -1, or 0 as in the files
    contractions: bool = False  # whether dots list the dimensions that they contract

    def __call__(self, graph: Graph) -> Graph:
        """Repair the whole graph, then prune it."""
        return self.prune(repair_padding(graph))

    def prune(self, graph: Graph) -> Graph:
        """Prune a repaired graph and apply the switches."""
        kept = graph if self.hops is None else keep_neighbourhood(graph, self.hops)
        kept = mark_contractions(kept) if self.contractions else kept
        return kept if self.padding == PADDING else erase_padding(kept)

    def describe(self) -> dict[str, Any]:
        """Return what a store or a model records; of the switches only those that are on."""
        described: dict[str, Any] = {"version": VERSION, "hops": self.hops}
        if self.padding != PADDING:
            described["padding"] = self.padding
        return described | ({"contractions": True} if self.contractions else {})
