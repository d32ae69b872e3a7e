"""The policy's inputs. They describe the graph but no device, so a policy works on any machine.

A node's neighbourhood says little about its position: all cells of an unrolled network look the
same, whatever their layer. Its distances from a few nodes, the landmarks, distinguish the cells.
Distances mean the same in a program of another size, because landmarks are chosen by content: the
first is the node with the most resident bytes, each next one the node furthest from the landmarks
so far.

Source: You, Ying and Leskovec, "Position-aware graph neural networks" (2019), whose anchors are
drawn at random; furthest points and both directions are additions here.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from solution.domain.neighbours import find_depths
from solution.features.nodes import compress
from solution.placement.graphs.cost_graph import DATA, PRODUCT, REDUCTION, CostGraph

LANDMARKS = 6
WAYS = 3  # distances per landmark: undirected, along the edges, against them
ELEMENT_TYPES = 19
NUM_COLUMNS = 12 + ELEMENT_TYPES + 8 + WAYS * LANDMARKS


def find_distances(graph: CostGraph) -> np.ndarray:
    """Return each node's distances (nodes, WAYS * LANDMARKS) from the landmarks, in edges, divided
    by the column's maximum. An unreachable node counts as one edge further than the furthest
    reachable one. Of equally far nodes, the first in canonical order becomes the landmark."""
    count = graph.num_nodes
    consumer, producer = graph.edges.T
    shape, ones = (count, count), np.ones(len(graph.edges))
    along = coo_array((ones, (producer, consumer)), shape=shape).tocsr()
    against = coo_array((ones, (consumer, producer)), shape=shape).tocsr()
    columns, nearest = [], np.full(count, np.inf)
    landmark = int(np.argmax(graph.resident_bytes))
    for _ in range(LANDMARKS):
        around = _walk(along, landmark, directed=False)
        nearest = np.minimum(nearest, around)
        columns += [around, *(_walk(links, landmark) for links in (along, against))]
        landmark = int(np.argmax(nearest))
    distances = np.stack(columns, axis=1)
    return distances / np.maximum(distances.max(axis=0), 1)


def _walk(links: csr_array, start: int, *, directed: bool = True) -> np.ndarray:
    """Return the lengths (nodes,), in edges, of the shortest paths from `start` to each node; the
    largest length + 1 for unreachable nodes."""
    found: np.ndarray = dijkstra(links, directed, indices=start, unweighted=True)
    there = np.isfinite(found)
    return np.where(there, found, found[there].max() + 1)


class Votes(NamedTuple):
    """Votes of neighbours on a node's device, because nodes joined by an edge should share one. The
    weights of all votes on one node's device add up to 1."""

    to: Tensor  # (votes,) int64: the node whose device is voted on
    of: Tensor  # (votes,) int64: the neighbour, which votes for the devices that it prefers
    weights: Tensor  # (votes,) float32: see _find_votes


@dataclass(frozen=True, eq=False)
class Inputs:
    """A graph as tensors, as the policy reads it."""

    opcodes: Tensor  # (nodes,) int64, ids of solution.domain.vocabulary
    columns: Tensor  # (nodes, NUM_COLUMNS) float32: see _find_columns; not standardised
    edges: Tensor  # (2, 2 * edges) int64, rows [target, source], in both directions
    # between leaders (CostGraph.leaders); edges of other nodes count as edges of their leaders
    votes: Votes
    decides: dict[str, Tensor]  # (nodes,) bool per task: nodes that have an action to decide

    @property
    def num_nodes(self) -> int:
        return len(self.opcodes)

    def to(self, device: torch.device) -> "Inputs":
        """Return the inputs on a torch device, except `decides`, which the policy does not read."""
        if device == self.opcodes.device:
            return self
        votes = Votes(*(part.to(device) for part in self.votes))
        return replace(self, opcodes=self.opcodes.to(device), columns=self.columns.to(device),
                       edges=self.edges.to(device), votes=votes)  # fmt: skip


@lru_cache(maxsize=1024)  # enough for the graphs of a training
def find_inputs(graph: CostGraph) -> Inputs:
    """Return the policy's inputs for a graph; they are computed once per graph."""
    consumer, producer = graph.edges.T
    both = np.stack([np.concatenate([consumer, producer]), np.concatenate([producer, consumer])])
    decides = {"placement": graph.decides_device, "schedule": graph.decides_priority,
               "fusion": graph.decides_fusion}  # fmt: skip
    return Inputs(
        torch.from_numpy(graph.opcodes.astype(np.int64)),
        torch.from_numpy(_find_columns(graph)),
        torch.from_numpy(both),
        _find_votes(graph),
        {task: torch.from_numpy(marks.copy()) for task, marks in decides.items()},
    )


def _find_votes(graph: CostGraph) -> Votes:
    """Return two votes per edge: each end votes that the other end runs on the same device. The
    weight of a vote is proportional to the cube root of the tensor's bytes. (With bytes themselves,
    only the largest tensors would count; logarithms hardly distinguish tensors.)"""
    # weight of a vote = cbrt(bytes of the edge) / sum of cbrt(bytes) of the receiver's edges
    ends = graph.leaders[graph.edges]
    weights = np.cbrt(graph.output_bytes[graph.edges[:, 1]])
    apart = (ends[:, 0] != ends[:, 1]) & (weights > 0)
    to, of = np.concatenate([ends[apart], ends[apart, ::-1]]).T
    weights = np.tile(weights[apart], 2)
    shares = weights / np.bincount(to, weights, minlength=1)[to]
    return Votes(torch.from_numpy(to.copy()), torch.from_numpy(of.copy()),
                 torch.from_numpy(shares.astype(np.float32)))  # fmt: skip


def _find_columns(graph: CostGraph) -> np.ndarray:
    """Return the columns (nodes, NUM_COLUMNS) float32 of each node: logarithms of sizes, element
    type (one-hot), depth and kind of the operation, distances from landmarks."""
    count, consumers = graph.num_nodes, graph.consumers.counts()
    sizes = [
        graph.operations, graph.output_bytes,
        np.maximum(graph.traffic_bytes - graph.output_bytes, 0), graph.resident_bytes,
        graph.producers.counts(), consumers, *graph.shapes.T,
    ]  # fmt: skip
    depths = find_depths(graph.edges, count)
    heights = find_depths(graph.edges[:, ::-1], count)
    kinds = [graph.fusion_kinds == kind for kind in (DATA, PRODUCT, REDUCTION)]
    marks = [
        depths / max(depths.max(), 1), heights / max(heights.max(), 1),
        np.arange(count) / count, graph.decides_device, graph.decides_fusion, *kinds,
    ]  # fmt: skip
    element = np.eye(ELEMENT_TYPES)[np.minimum(graph.element_types, ELEMENT_TYPES - 1)]
    columns = [compress(np.stack(sizes, 1)), element, np.stack(marks, 1), find_distances(graph)]
    return np.concatenate(columns, axis=1).astype(np.float32)
