"""What is done to every graph before a ranker sees it: repair the padding, prune.

Both depend on nothing but the graph, so they are done once and kept in the store. Preparing again
what was prepared with as many hops, or with more, gives the same graph as preparing the file: so a
model that carries its own preparation ranks a graph alike, wherever it comes from.
"""

from dataclasses import dataclass
from typing import Any

from solution.domain.graph import Graph
from solution.features.padding import repair_padding
from solution.features.pruning import keep_neighbourhood

VERSION = 1  # raise it where the same files would be prepared differently than before


@dataclass(frozen=True)
class Preparation:
    """From the graph of a file to the graph that rankers are given."""

    hops: int | None = 1  # kept around the configurable nodes of a layout graph; None: everything

    def __call__(self, graph: Graph) -> Graph:
        """Repair on the whole graph, then prune."""
        return self.prune(repair_padding(graph))

    def prune(self, graph: Graph) -> Graph:
        """Of a repaired graph, what is kept."""
        return graph if self.hops is None else keep_neighbourhood(graph, self.hops)

    def describe(self) -> dict[str, Any]:
        """What a store or a model remembers of it."""
        return {"version": VERSION, "hops": self.hops}
