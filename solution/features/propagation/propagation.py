"""Compute the layouts and copies of all tensors that XLA's layout assignment would give.

The layouts that the configuration and the backend request are propagated through the whole graph in
XLA's order (solution.features.propagation.worklist). A tensor is copied where its producer and its
reader end up with different layouts. A reshape or transpose is a bitcast if it moves no data, and a
copy otherwise.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODE_IDS
from solution.features.operations import NONE, find_operands, tensor_ranks
from solution.features.propagation.backend import CPU, Backend
from solution.features.propagation.canonical import UNSET
from solution.features.propagation.instructions import Instructions, list_instructions
from solution.system.numba_cache import announce_compiling

CAPACITY = 8  # initial number of rows of the table of states, per instruction and use


@dataclass(frozen=True)
class Numbered:
    """The states (layouts and copy) of all points (instructions and uses) in configurations."""

    # (configs, points) int32: the state of each point, as an index into the arrays (states, ...)
    numbers: np.ndarray
    # (states,) int64, the point of each state: instructions are numbered first, then uses
    point: np.ndarray
    layouts: np.ndarray  # (states, 4) int64, columns MADE, FIRST, SECOND, COPY of states.py
    instructions: int  # the number of instructions among the points

    @property
    def results(self) -> np.ndarray:
        """Packed layouts (configs, instructions) int64 of results; -1: no layout."""
        return self.layouts[self.numbers[:, : self.instructions], 0]

    @property
    def copies(self) -> np.ndarray:
        """The kind of copy (configs, points) int64 at each point, 0 if none."""
        return self.layouts[self.numbers, 3]


class Propagation:
    """XLA's layout assignment, simulated for a whole (not pruned) graph with correct padding."""

    def __init__(self, graph: Graph, backend: Backend = CPU) -> None:
        announce_compiling()
        self.graph = graph
        self.backend = backend
        self.instructions: Instructions = list_instructions(graph, backend)

    def number(self, rows: np.ndarray | slice = slice(None)) -> Numbered:
        """Return the states of all points in the configurations `rows` (k,) of the codebook."""
        codes = np.ascontiguousarray(self.graph.layouts.codes[rows], np.int64)
        return self._number(codes, self._packed)

    def number_nothing(self) -> Numbered:
        """Return the states of all points in one configuration that requests no layouts."""
        codes = np.zeros((1, len(self.graph.configurable)), np.int64)
        return self._number(codes, np.full_like(self._packed, UNSET))

    def _number(self, codes: np.ndarray, packed: np.ndarray) -> Numbered:
        from solution.features.propagation.states import (
            grow,
            make_loaded,
            make_states,
            number_states,
        )

        instructions = self.instructions
        points = instructions.number + len(instructions.read)
        states = make_states(points, CAPACITY * (points + 1))
        numbers, done = np.empty((len(codes), points), np.int32), 0
        for stored, entries in self._assigner.assign(packed, self.graph.layouts.starts, codes):
            loaded = make_loaded(instructions, entries.shape[1])
            end = done + len(entries)
            while done < end:
                left = entries[len(entries) - (end - done) :]
                done += number_states(instructions, stored, left, loaded, states, numbers[done:end])
                states = grow(states) if done < end else states
        count = int(states.total[0])
        return Numbered(numbers, states.point[:count], states.layouts[:count], instructions.number)

    @cached_property
    def _assigner(self):  # type: ignore[no-untyped-def]
        from solution.features.propagation.assigning import Assigner

        return Assigner(self.instructions, self._free)

    @cached_property
    def _packed(self) -> np.ndarray:
        """The layouts (pairs, 3) of output, input and kernel that each (node, layout) pair
        requests, packed into integers."""
        from solution.features.propagation.states import pack_given

        graph, pairs, operands = self.graph, self.graph.layouts, find_operands(self.graph)
        ranks = np.minimum(tensor_ranks(graph), MAX_RANK)
        node = graph.configurable
        tensors = np.stack([node, operands.input[node], operands.kernel[node]], axis=1)
        tensor_rank = np.where(tensors == NONE, 0, ranks[tensors]).astype(np.int64)
        packed = np.empty((len(pairs.layouts), len(LAYOUT_TENSORS)), np.int64)
        shape = (-1, len(LAYOUT_TENSORS), MAX_RANK)
        pack_given(pairs.layouts.reshape(shape), tensor_rank[pairs.node], packed)
        return packed

    @cached_property
    def _free(self) -> np.ndarray:
        """(instructions,) bool: True for constants, iotas and broadcasts of scalars, which are
        written in any layout without a copy."""
        ops, ranks = self.instructions, np.append(tensor_ranks(self.graph), 0)
        filled = np.isin(ops.opcodes, [OPCODE_IDS["constant"], OPCODE_IDS["iota"]])
        free = (ops.node != NONE) & filled
        for op in np.flatnonzero(ops.opcodes == OPCODE_IDS["broadcast"]):
            read = ops.read[ops.use_starts[op] : ops.use_starts[op + 1]]
            free[op] = (ranks[ops.node[read]] == 0).all()
        return free
