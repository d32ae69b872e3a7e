"""What is done to every graph before a ranker sees it: repair the padding, prune.

Both depend on nothing but the graph, so they are done once and kept in the store. Preparing again
what was prepared with as many hops, or with more, gives the same graph as preparing the file: so a
model that carries its own preparation ranks a graph alike, wherever it comes from.

Two switches show what the competition's participants found: unused slots may hold 0 as in the files
instead of -1, and dots may say what they sum over. Both are applied to what a store has, as pruning
is, so a store serves models with them and without.
"""

from dataclasses import dataclass
from typing import Any

from solution.domain.graph import Graph
from solution.features.contractions import mark_contractions
from solution.features.padding import PADDING, erase_padding, repair_padding
from solution.features.pruning import keep_neighbourhood

VERSION = 1  # raise it where the same files would be prepared differently than before


@dataclass(frozen=True)
class Preparation:
    """From the graph of a file to the graph that rankers are given."""

    hops: int | None = 1  # kept around the configurable nodes of a layout graph; None: everything
    padding: int = PADDING  # what unused slots of dimension numbers hold: -1, or 0 as in the files
    contractions: bool = False  # whether dots say which dimensions they sum

    def __call__(self, graph: Graph) -> Graph:
        """Repair on the whole graph, then prune."""
        return self.prune(repair_padding(graph))

    def prune(self, graph: Graph) -> Graph:
        """Of a repaired graph what is kept, as the switches say."""
        kept = graph if self.hops is None else keep_neighbourhood(graph, self.hops)
        kept = mark_contractions(kept) if self.contractions else kept
        return kept if self.padding == PADDING else erase_padding(kept)

    def describe(self) -> dict[str, Any]:
        """What a store or a model remembers of it; of the switches those that are on."""
        described: dict[str, Any] = {"version": VERSION, "hops": self.hops}
        if self.padding != PADDING:
            described["padding"] = self.padding
        return described | ({"contractions": True} if self.contractions else {})
