"""A layout graph as rows that are sorted by segment, so that a segment is a slice of them."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solution.domain.graph import Graph
from solution.features.pruning import keep_neighbourhood
from solution.models.nets.devices import send
from solution.papers.embedding_table import name_graph
from solution.papers.rows import RowInputs, prepare_rows
from solution.papers.segments import divide


@dataclass(frozen=True)
class Segment(RowInputs):
    """One segment as a graph of its own."""

    columns: np.ndarray  # (configurable,) positions among the configurable nodes of the codebook

    def given(self, configs: np.ndarray) -> Tensor:
        pairs = self.codebook.pairs(configs)[:, self.columns].T
        return self.pair_tokens[send(pairs, self.pair_tokens.device)].long()


@dataclass(frozen=True)
class SegmentedInputs(RowInputs):
    """A graph without edges between segments, and all else sorted by segment.

    pair_tokens is int8 here.
    """

    key: int  # names the graph in the table
    columns: np.ndarray  # (configurable,) as in Segment
    bounds: np.ndarray  # (3, segments + 1) where nodes, edges and configurable nodes begin

    @property
    def sizes(self) -> np.ndarray:
        """The nodes (segments,) of each segment."""
        return np.diff(self.bounds[0])

    @property
    def shares(self) -> Tensor:
        """The share (segments,) float32 of the graph's nodes that each segment has."""
        return torch.from_numpy(self.sizes / self.sizes.sum()).float()

    def segment(self, number: int) -> Segment:
        """One of its segments."""
        nodes, edges, configurable = (
            slice(int(first), int(last)) for first, last in self.bounds[:, number : number + 2]
        )
        return Segment(
            opcodes=self.opcodes[nodes],
            numeric=self.numeric[nodes],
            tokens=self.tokens[nodes],
            pair_tokens=self.pair_tokens,
            edge_index=self.edge_index[:, edges] - nodes.start,
            configurable=self.configurable[configurable] - nodes.start,
            codebook=self.codebook,
            columns=self.columns[configurable],
        )


def prepare_segments(
    graph: Graph, hops: int | None, partition: str, max_nodes: int | None
) -> SegmentedInputs:
    """Prune, divide, cut the edges between segments, and sort everything by segment."""
    pruned = graph if hops is None else keep_neighbourhood(graph, hops)
    segments = divide(pruned, partition, max_nodes)
    order = np.concatenate(segments)
    position = np.argsort(order)
    number = np.repeat(np.arange(len(segments)), [len(segment) for segment in segments])[position]
    of_edge = number[pruned.edges[:, 0]]
    inside = np.flatnonzero(of_edge == number[pruned.edges[:, 1]])
    inside = inside[np.argsort(of_edge[inside], kind="stable")]
    of_column = number[pruned.configurable]
    columns = np.argsort(of_column, kind="stable")
    rows = prepare_rows(
        dataclasses.replace(
            pruned,
            node_features=pruned.node_features[order],
            node_opcodes=pruned.node_opcodes[order],
            edges=position[pruned.edges[inside]],
            configurable=position[pruned.configurable],
            summed=None,
        )
    )
    counts = [np.bincount(n, minlength=len(segments)) for n in (number, of_edge[inside], of_column)]
    values = {f.name: getattr(rows, f.name) for f in dataclasses.fields(rows)}
    values["configurable"] = rows.configurable[torch.from_numpy(columns)]
    values["pair_tokens"] = rows.pair_tokens.to(torch.int8)  # the only ones that grow with layouts
    return SegmentedInputs(
        **values,
        key=name_graph(*graph.key),
        columns=columns,
        bounds=np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0))),
    )
