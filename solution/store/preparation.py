"""What is done to every graph before a ranker sees it: repair the padding, prune.

Both depend on nothing but the graph, so they are done once and kept in the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solution.domain.graph import Graph
from solution.features.padding import repair_padding
from solution.features.pruning import keep_neighbourhood
from solution.system.errors import InputError

VERSION = 1  # raise it where the same files would be prepared differently than before


@dataclass(frozen=True)
class Preparation:
    """From the graph of a file to the graph that rankers are given."""

    hops: int | None = 1  # kept around the configurable nodes of a layout graph; None: everything

    def __call__(self, graph: Graph) -> Graph:
        """Repair on the whole graph, then prune."""
        repaired = repair_padding(graph)
        return repaired if self.hops is None else keep_neighbourhood(repaired, self.hops)

    def describe(self) -> dict[str, Any]:
        """What a store remembers of it."""
        return {"version": VERSION, "hops": self.hops}


def check_preparation(preparation: Mapping[str, Any], needed: int | None, store: Path) -> None:
    """Raise InputError where the `store` was prepared by another program than this one.

    And where it keeps fewer nodes than `needed` hops (None: all).
    """
    version, kept = preparation.get("version"), preparation.get("hops")
    if version != VERSION:
        raise InputError(
            f"{store}: was prepared in version {version}, expected {VERSION}. Prepare the data "
            "again."
        )
    if kept is not None and (needed is None or kept < needed):
        wanted = "--whole" if needed is None else f"--hops {needed}"
        raise InputError(
            f"{store}: keeps {kept} hop(s) around the configurable nodes, but an experiment looks "
            f"further. Prepare the data with {wanted}."
        )
