"""Group a graph's configurations by the layouts that they request from a TPU's compiler.

A configuration sets a layout for every tensor of a configurable node, but only some of these
tensors can be requested (solution.collecting.tpu.asking). Configurations with equal requests are
one module to the compiler, so they have one estimate. The 1,000 configurations of a real graph were
17 to 987 distinct modules, depending on the graph.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.collecting.constraints import complete_layout
from solution.collecting.tpu.asking import RequestWriter, find_asked_ranks
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK

# a configurable node's position, and for each of its tensors the requested layout, minor to major;
# () if none is requested
NodeRequest = tuple[int, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, eq=False)
class RequestSets:
    """The distinct sets of requests among a graph's configurations.

    The order of the sets depends on the requests alone, not on the order of configurations.
    """

    # (sets, configurable) int64: the number of each node's request; equal numbers mean equal
    # requests of the same node
    numbers: np.ndarray
    of_config: np.ndarray  # (configs,) int64: the number of each configuration's set
    _writer: RequestWriter
    _layouts: np.ndarray  # (pairs, 3, 6): distinct layouts of a node's output and operands
    _pairs: np.ndarray  # (sets, configurable): index in `_layouts` for each set and node

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def counts(self) -> np.ndarray:
        """Return the number of configurations (sets,) of each set."""
        return np.bincount(self.of_config, minlength=len(self))

    def write_module(self, number: int) -> bytes:
        """Return the serialized module that makes the requests of set `number`."""
        return self._writer.write(self._layouts[self._pairs[number]])


def group_by_requests(graph: Graph, module: Any) -> RequestSets:
    """Return the distinct sets of requests among the configurations of a layout graph.

    Args:
        module: the message Module whose instructions are the graph's nodes, in their order.
    """
    book = graph.layouts
    ranks = find_asked_ranks(module, graph.configurable)
    layouts = book.layouts.reshape(-1, len(LAYOUT_TENSORS), MAX_RANK)
    requests: list[NodeRequest] = [
        (node, _complete(layouts[pair], ranks[node]))
        for pair, node in enumerate(book.node.tolist())
    ]
    # Requests are numbered in sorted order, so that the order of the sets of requests (the rows of
    # `numbers`) does not depend on the order of configurations.
    number = {request: n for n, request in enumerate(sorted(set(requests)))}
    of_pair = np.array([number[request] for request in requests], np.int64)
    rows = of_pair[book.pairs(slice(None))]  # (distinct configurations, configurable)
    numbers, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return RequestSets(
        numbers=numbers,
        of_config=inverse.reshape(-1)[book.rows],
        _writer=RequestWriter(module, graph.configurable),
        _layouts=layouts,
        _pairs=book.pairs(first),
    )


def _complete(layouts: np.ndarray, ranks: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the complete layouts of a node's tensors; () for a tensor without a request.

    Args:
        layouts: (3, 6) of output and operands, minor to major, -1 for unset.
        ranks: (3,) the tensors' ranks; 0 if the layout cannot be requested.
    """
    given = [
        layout[layout >= 0].tolist()[:rank] for layout, rank in zip(layouts, ranks, strict=True)
    ]
    return tuple(
        tuple(complete_layout(layout, rank)) if layout and rank else ()
        for layout, rank in zip(given, ranks.tolist(), strict=True)
    )
