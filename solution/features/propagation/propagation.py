"""Compute what the compiler makes of configurations: every tensor's layout, and the copies.

The requests of the configuration and of the backend are propagated through the whole graph in XLA's
order (solution.features.propagation.worklist). A tensor is copied where its producer and its reader
end up with different layouts. A reshape or transpose that moves no data is a bitcast; any other
copies as well.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODE_IDS
from solution.features.operands import NONE, find_operands
from solution.features.padding import tensor_ranks
from solution.features.propagation.backend import CPU, Backend
from solution.features.propagation.canonical import UNSET
from solution.features.propagation.instructions import Instructions, list_instructions

ROOM = 8  # initial capacity: states for each instruction and use
CAPACITY = 8  # capacity of the worklist: constraints for each instruction and use


@dataclass(frozen=True)
class Assigned:
    """The layouts and copies of some configurations."""

    layouts: np.ndarray  # (configs, instructions) int64, packed layouts; -1: none
    copies: np.ndarray  # (configs, uses + instructions) int8, the kind of copy, 0 if none


@dataclass(frozen=True)
class Numbered:
    """The states of all instructions and uses in some configurations."""

    numbers: np.ndarray  # (configs, places) int32, rows of the other arrays
    place: np.ndarray  # (states,) int64
    layouts: np.ndarray  # (states, 4) int64, columns of solution.features.propagation.states


class Propagation:
    """Layout assignment of a whole graph whose padding is repaired."""

    def __init__(self, graph: Graph, backend: Backend = CPU) -> None:
        self.graph = graph
        self.backend = backend
        self.instructions: Instructions = list_instructions(graph, backend)

    @cached_property
    def copied(self) -> np.ndarray:
        """The node (uses + instructions,) whose tensor a copy would copy; -1: no node's."""
        own = self.instructions
        return np.concatenate([own.node[own.read], own.node])

    @cached_property
    def readings(self) -> Neighbours:
        """The uses that read each instruction."""
        own = self.instructions
        return Neighbours.of(own.read, np.arange(len(own.read)), own.count)

    def assign(self, rows: np.ndarray | slice = slice(None)) -> Assigned:
        """Return layouts and copies of the distinct configurations `rows` (k,) of the codebook."""
        codes = np.ascontiguousarray(self.graph.layouts.codes[rows], np.int64)
        return self._run(codes, self._packed)

    def assign_nothing(self) -> Assigned:
        """Return layouts and copies of the program without any request: one configuration."""
        codes = np.zeros((1, len(self.graph.configurable)), np.int64)
        return self._run(codes, np.full_like(self._packed, UNSET))

    def number(self, rows: np.ndarray | slice = slice(None)) -> Numbered:
        """Return the states of the distinct configurations `rows` (k,) of the codebook."""
        codes = np.ascontiguousarray(self.graph.layouts.codes[rows], np.int64)
        return self._number(codes, self._packed)

    def number_nothing(self) -> Numbered:
        """Return the states of the program without any request: one configuration."""
        codes = np.zeros((1, len(self.graph.configurable)), np.int64)
        return self._number(codes, np.full_like(self._packed, UNSET))

    def _number(self, codes: np.ndarray, packed: np.ndarray) -> Numbered:
        from solution.features.propagation.states import grow, make_states, number_states

        own = self.instructions
        places = own.count + len(own.read)
        states, state = make_states(places, ROOM * (places + 1)), self._state()
        numbers, done = np.empty((len(codes), places), np.int32), 0
        while done < len(codes):
            done += number_states(
                self._program, self._free, own.main, own.asked, packed, self.graph.layouts.starts,
                codes[done:], state, states, numbers[done:],
            )  # fmt: skip
            states = grow(states) if done < len(codes) else states
        count = int(states.total[0])
        return Numbered(numbers, states.place[:count], states.layouts[:count])

    def _run(self, codes: np.ndarray, packed: np.ndarray) -> Assigned:
        from solution.features.propagation.copies import run  # importing numba is slow

        own = self.instructions
        layouts = np.empty((len(codes), own.count), np.int64)
        copies = np.empty((len(codes), len(own.read) + own.count), np.int8)
        run(self._program, self._free, own.asked, packed, self.graph.layouts.starts, codes,
            self._state(), layouts, copies)  # fmt: skip
        return Assigned(layouts, copies)

    @cached_property
    def _program(self):  # type: ignore[no-untyped-def]
        from solution.features.propagation.worklist import Program

        own, backend = self.instructions, self.backend
        flags = (backend.row_major_operands, backend.row_major_products, backend.by_custom_calls)
        return Program(
            own.kind, own.rank, own.sizes, own.dimensions, own.fixed, own.turned, own.use_starts,
            own.read, own.reader, own.before, own.behind, own.order, *self.readings,
            np.array(flags),
        )  # fmt: skip

    def _state(self):  # type: ignore[no-untyped-def]
        from solution.features.propagation.worklist import State

        count, uses = self.instructions.count, len(self.instructions.read)
        capacity = CAPACITY * (count + uses) + 64
        return State(
            np.empty(count, np.int64), np.empty(uses, np.int64), np.empty(uses, np.int64),
            np.empty(count + uses, np.int8), np.empty((2, capacity), np.int64),
            np.empty(capacity, np.int64), np.empty(5, np.int64),
        )  # fmt: skip

    @cached_property
    def _packed(self) -> np.ndarray:
        """The packed layouts (pairs, 3) that each pair of the codebook requests."""
        from solution.features.propagation.copies import pack_given

        graph, pairs, operands = self.graph, self.graph.layouts, find_operands(self.graph)
        ranks = np.minimum(tensor_ranks(graph), MAX_RANK)
        own = graph.configurable
        tensors = np.stack([own, operands.input[own], operands.kernel[own]], axis=1)
        tensor_rank = np.where(tensors == NONE, 0, ranks[tensors]).astype(np.int64)
        packed = np.empty((len(pairs.layouts), len(LAYOUT_TENSORS)), np.int64)
        shape = (-1, len(LAYOUT_TENSORS), MAX_RANK)
        pack_given(pairs.layouts.reshape(shape), tensor_rank[pairs.node], packed)
        return packed

    @cached_property
    def _free(self) -> np.ndarray:
        """Instructions whose tensors the compiler writes in any layout without a copy."""
        own, made = self.instructions, self.instructions.opcodes
        ranks = np.append(tensor_ranks(self.graph), 0)
        free = (own.node != NONE) & np.isin(made, [OPCODE_IDS["constant"], OPCODE_IDS["iota"]])
        for place in np.flatnonzero(made == OPCODE_IDS["broadcast"]):
            read = own.read[own.use_starts[place] : own.use_starts[place + 1]]
            free[place] = (ranks[own.node[read]] == 0).all()
        return free
