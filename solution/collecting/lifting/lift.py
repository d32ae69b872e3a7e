"""Lift a graph back to a program: a module that has the graph's features.

The competition gives graphs, not programs. Opcodes, types, shapes, windows and edges are in the
features. The rest is inferred from shapes, or guessed such that it costs the same; guesses are
counted. Read with solution.programs.hlo.nodes, the module gives the same node features, edges and
configurable nodes.
"""

from dataclasses import dataclass
from typing import Any

from solution.collecting.lifting.attributes import Attributes
from solution.collecting.lifting.checks import check_operands
from solution.collecting.lifting.draft import TOKEN, TUPLE, Draft, make_draft
from solution.collecting.lifting.operand_order import order_operands
from solution.collecting.lifting.tuple_types import Parts, Tensor, TupleTypes, Type
from solution.collecting.lifting.values import find_values, make_literal
from solution.domain.graph import Graph
from solution.programs.hlo.messages import MESSAGES

# Opcodes that need facts which no feature tells, so that no equivalent can be written.
REFUSED_NAMES = """
    send send-done recv recv-done copy-start copy-done async-start async-update async-done
    all-gather-start all-gather-done collective-permute-start collective-permute-done
    all-reduce-start all-reduce-done reduce-scatter all-gather all-to-all collective-permute
    domain conditional trace tuple-select cholesky stochastic-convert dynamic-reshape
    rng-get-and-update-state
"""
REFUSED = frozenset(REFUSED_NAMES.split())
CONTRADICTS = "its features, or the sizes of what it reads, contradict each other"
FIXED, FREE = "value of constant, by what reads it", "value of constant, any"


@dataclass(frozen=True)
class Lifted:
    """A program that has the features of a graph."""

    module: Any  # the message Module; instruction n + 1 is node n
    guesses: dict[str, list[int]]  # by kind of guess: the nodes where something was guessed


def lift(graph: Graph) -> Lifted:
    """Return the graph as a module.

    Raises:
        NotLiftedError: a node cannot become an instruction; the message names it and says why.
    """
    draft = make_draft(graph)
    for node, opcode in enumerate(draft.opcodes):
        if opcode in REFUSED:
            raise draft.refuse(node, "the graph lacks what this operation needs")
    check_operands(draft)
    types = TupleTypes(draft, order_operands(draft))
    types.resolve()
    module = _Writer(draft, types).write()
    return Lifted(module, draft.guesses.nodes)


class _Writer:
    def __init__(self, draft: Draft, types: TupleTypes) -> None:
        self._draft = draft
        self._types = types
        self._attributes = Attributes(draft, types)
        self._values = find_values(draft, types)
        self._shapes: dict[Type, Any] = {}

    def write(self) -> Any:
        draft = self._draft
        entry = len(draft.ranges) - 1
        module = MESSAGES["Module"](name=draft.graph.name, entry_computation_id=entry + 1)
        for number, (nodes, root) in enumerate(zip(draft.ranges, draft.roots, strict=True)):
            module.computations.add(
                name=self._name(number),
                id=number + 1,
                root_id=root + 1,
                instructions=[self._make(node) for node in nodes],
            )
        parameters = draft.parameters(draft.roots[entry])
        module.host_program_shape.parameters.extend(self._shape_of(one) for one in parameters)
        module.host_program_shape.parameter_names.extend(
            f"parameter.{one + 1}" for one in parameters
        )
        module.host_program_shape.result.CopyFrom(self._shape_of(draft.roots[entry]))
        return module

    def _name(self, number: int) -> str:
        """Return a computation's name, by which readers of modules recognise main computations."""
        draft = self._draft
        caller = draft.callers.get(number)
        if caller is None:
            return "main" if number == len(draft.ranges) - 1 else f"uncalled.{number}"
        if draft.opcodes[caller] != "while":
            return f"{draft.opcodes[caller].replace('-', '_')}.{number}"
        is_body = draft.roots[number] == self._types.loops[caller].body
        return f"while_body.{number}" if is_body else f"while_condition.{number}"

    def _make(self, node: int) -> Any:
        """Return the instruction of a node."""
        draft, opcode = self._draft, self._draft.opcodes[node]
        shape = self._shape_of(node)
        try:
            fields = self._attributes.describe(node)
        except (IndexError, KeyError, ValueError) as error:
            raise draft.refuse(node, CONTRADICTS) from error
        if opcode == "constant":
            fields["literal"] = make_literal(draft, node, shape, self._values)
            draft.guesses.add(FIXED if node in self._values else FREE, node)
        elif opcode == "outfeed":
            fields["outfeed_shape"] = self._shape_of(self._types.operands[node][0])
        return MESSAGES["Instruction"](
            id=node + 1,
            name=f"{opcode}.{node + 1}",
            opcode=opcode,
            shape=shape,
            operand_ids=[one + 1 for one in self._types.operands[node]],
            called_computation_ids=[draft.computation[root] + 1 for root in draft.called[node]],
            **fields,
        )

    def _shape_of(self, node: int) -> Any:
        return self._make_shape(self._types.type_of(node))

    def _make_shape(self, node_type: Type) -> Any:
        if node_type not in self._shapes:
            make = MESSAGES["Shape"]
            if isinstance(node_type, Parts):
                parts = [self._make_shape(part) for part in node_type.parts]
                self._shapes[node_type] = make(element_type=TUPLE, tuple_shapes=parts)
            else:
                self._shapes[node_type] = _make_tensor(node_type)
        return self._shapes[node_type]


def _make_tensor(node_type: Tensor) -> Any:
    shape = MESSAGES["Shape"](element_type=node_type.kind, dimensions=node_type.sizes)
    if node_type.kind != TOKEN:
        shape.layout.minor_to_major.extend(node_type.layout)
    return shape
