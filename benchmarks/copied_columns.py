"""Describe the compiler's treatment of each configuration as columns: copies and layouts.

Copies are counted by how they move memory, by size, and by their readers. Each column is the
difference from the program without requests, so that rows of different programs are comparable.
The graph must be whole, because a request's effect can propagate through all of it.
"""

import numpy as np

from solution.domain.graph import Graph, PerGraph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.column import Feature
from solution.features.operations import NONE, num_bytes
from solution.features.propagation.instructions import (
    BROADCASTS,
    CONCATENATES,
    KEEPS,
    REDUCES,
    RESHAPES,
    TRANSPOSES,
)
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.state_table import WAYS

BLOCK_ENTRIES = 1 << 22  # (configuration, copy) entries per block
SIZES = {"small": (0, 1 << 15), "medium": (1 << 15, 1 << 20), "large": (1 << 20, np.inf)}  # bytes
READERS = {
    "product": "dots and convolutions",
    "reshape": "reshapes and transposes",
    "element": "operations element by element",
    "reduce": "reductions",
    "request": "the configuration's own requests",
    "other": "everything else, and the results",
}
FEATURES = (
    Feature("propagated_copies", "count per tensor", "copies that the configuration adds"),
    Feature("propagated_bytes", "share", "what they move, of the bytes of all tensors"),
    *(Feature(f"propagated_{way}", "share", f"copies {reason}, by bytes")
      for way, reason in WAYS.items()),
    *(Feature(f"propagated_{size}", "share", f"{size} copies, by bytes") for size in SIZES),
    *(Feature(f"propagated_{size}_copies", "count per tensor", f"{size} copies") for size in SIZES),
    *(Feature(f"propagated_for_{reader}", "share", f"copies for {reason}, by bytes")
      for reader, reason in READERS.items()),
    Feature("propagated_element_minor", "share", "operations element by element along another "
            "dimension, by bytes"),
    Feature("propagated_broadcast_minor", "share", "the same of broadcasts"),
    Feature("propagated_reduce_minor", "share", "the same of reductions' results"),
    Feature("propagated_reduce_sums", "share", "reductions that sum along the contiguous "
            "dimension, by bytes that they read"),
)  # fmt: skip


def _compute_rows(graph: Graph) -> np.ndarray:
    propagation = Propagation(graph)
    plain = describe(propagation, propagation.number_nothing())
    own, codes = propagation.instructions, graph.layouts.codes
    step = max(1, BLOCK_ENTRIES // max(1, own.number + len(own.read)))
    blocks = [
        describe(propagation, propagation.number(slice(first, first + step)))
        for first in range(0, len(codes), step)
    ]
    rows = (np.concatenate(blocks) - plain).astype(np.float32)
    rows.setflags(write=False)
    return rows


# The columns FEATURES: (distinct configs, len(FEATURES)) float32 of a whole graph.
propagated_rows = PerGraph(_compute_rows)


def describe(propagation: Propagation, assigned: Numbered) -> np.ndarray:
    """Return the columns FEATURES (configs, columns) float64, without subtracting the default."""
    graph, own = propagation.graph, propagation.instructions
    copied = np.concatenate([own.node, own.node[own.read]])
    # 0 for instructions that compute no node's tensor
    tensor_bytes = np.append(num_bytes(graph), 0)
    programs = own.node[own.is_programs]
    count, total = len(programs), max(1.0, float(tensor_bytes[programs].sum()))
    size = tensor_bytes[copied]
    is_sized = [(size >= low) & (size < high) for low, high in SIZES.values()]
    readers = classify_readers(propagation)
    is_for = [readers == number for number in range(len(READERS))]
    any_way = np.stack(
        [np.full(len(size), 1 / count), size / total, *(mark * size / total for mark in is_sized),
         *(mark / count for mark in is_sized), *(mark * size / total for mark in is_for)], axis=1
    )  # fmt: skip
    by_any = (assigned.copies > 0).astype(np.float32) @ any_way
    by_way = [(assigned.copies == 1 + way) @ (size / total) for way in range(len(WAYS))]
    return np.column_stack(
        [by_any[:, :2], *by_way, by_any[:, 2:], _describe_layouts(propagation, assigned)]
    )


def classify_readers(propagation: Propagation) -> np.ndarray:
    """Return what reads a copy (instructions + uses,), as an index into READERS."""
    own = propagation.instructions
    names = list(READERS)
    made = np.maximum(own.opcodes, 0)
    reader = np.full(own.number, names.index("other"))
    is_product = np.isin(made, [OPCODE_IDS["dot"], OPCODE_IDS["convolution"]])
    reader[is_product] = names.index("product")
    reader[np.isin(own.kind, [RESHAPES, TRANSPOSES])] = names.index("reshape")
    reader[np.isin(own.kind, [KEEPS, CONCATENATES, BROADCASTS])] = names.index("element")
    reader[own.kind == REDUCES] = names.index("reduce")
    reader[own.asked[:, 0] != NONE] = names.index("request")
    return np.concatenate([reader, reader[own.reader]])


def _describe_layouts(propagation: Propagation, assigned: Numbered) -> np.ndarray:
    """Return shares (configs, 4) of bytes not processed along the last dimension, and sums."""
    own = propagation.instructions
    tensor_bytes = np.append(num_bytes(propagation.graph), 0)[own.node]
    total = max(1.0, float(tensor_bytes[own.is_programs].sum()))
    minor = np.where(assigned.results < 0, -1, assigned.results & 7)
    moved = (minor != own.rank - 1) & (minor >= 0) & (own.rank > 1)
    kinds = ((KEEPS, CONCATENATES), (BROADCASTS,), (REDUCES,))
    columns = [moved @ (np.isin(own.kind, kind) * tensor_bytes / total) for kind in kinds]
    sums = np.zeros(len(minor))
    for place in np.flatnonzero(own.kind == REDUCES):
        read = own.read[own.use_starts[place] : own.use_starts[place + 1]]
        if not len(read):
            continue
        source = read[np.argmax(own.rank[read])]
        summed = own.dimensions[place][own.dimensions[place] >= 0]
        sums += np.isin(minor[:, source], summed) * tensor_bytes[source] / total
    return np.column_stack([*columns, sums])
