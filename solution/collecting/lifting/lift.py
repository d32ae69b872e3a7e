"""Lift a graph: turn it back into a program, a module that has the graph's features.

The competition publishes graphs, not programs. Opcodes, types, shapes, windows and edges are in the
graph. Other facts are inferred from shapes, or guessed so that the program costs about the same;
the guesses are recorded. From the module, solution.programs.hlo.nodes reads the node features,
edges and configurable nodes of the original graph.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from solution.collecting.lifting.attributes import Attributes
from solution.collecting.lifting.draft import TOKEN, TUPLE, Draft, make_draft
from solution.collecting.lifting.operand_order import COMMUTATIVE, ORDERED, order_operands
from solution.collecting.lifting.tuple_types import Parts, TupleTypes, Type
from solution.collecting.lifting.values import find_values, make_literal
from solution.domain.graph import Graph
from solution.programs.compiler import print_hlo
from solution.programs.hlo.messages import MESSAGES
from solution.system.files import write_bytes

# Opcodes that cannot be lifted, because the features lack their attributes.
REFUSED_NAMES = """
    send send-done recv recv-done copy-start copy-done async-start async-update async-done
    all-gather-start all-gather-done collective-permute-start collective-permute-done
    all-reduce-start all-reduce-done reduce-scatter all-gather all-to-all collective-permute
    domain conditional trace tuple-select cholesky stochastic-convert dynamic-reshape
    rng-get-and-update-state
"""
REFUSED = frozenset(REFUSED_NAMES.split())
UNARY_NAMES = """
    abs cbrt ceil convert copy cosine count-leading-zeros exponential exponential-minus-one floor
    imag is-finite log log-plus-one logistic negate not popcnt real reduce-precision
    round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh
"""
UNARY = frozenset(UNARY_NAMES.split())
BINARY = frozenset([*COMMUTATIVE, *ORDERED])
# opcodes whose result has as many elements as their operand
REORDERS = frozenset({"reshape", "transpose", "reverse"})
SINGLE = UNARY | REORDERS | {"broadcast", "slice", "bitcast-convert", "get-tuple-element"}
# {opcode: maximum number of operands}; the operand counts of other opcodes are not checked.
MOST = dict.fromkeys(SINGLE, 1) | dict.fromkeys(BINARY, 2) | {"select": 3, "clamp": 3}
PROTOBUF = ".pb"
CONTRADICTS = "its features, or the sizes of what it reads, contradict each other"
FIXED, FREE = "value of constant, by its readers", "value of constant, any"  # keys of `guesses`


@dataclass(frozen=True)
class Lifted:
    """A program that was made from a graph, and the facts that were guessed for it."""

    module: Any  # the message Module; instruction n + 1 is node n
    guesses: dict[str, list[int]]  # {guessed fact: nodes for which it was guessed}


def lift(graph: Graph) -> Lifted:
    """Turn a graph back into a program. Raises NotLiftedError, with node and reason, if a node
    cannot become an instruction."""
    draft = make_draft(graph)
    for node, opcode in enumerate(draft.opcodes):
        if opcode in REFUSED:
            raise draft.refuse(node, "the graph lacks attributes that this operation needs")
    _check_operands(draft)
    types = TupleTypes(draft, order_operands(draft))
    types.resolve()
    module = _Writer(draft, types).write()
    return Lifted(module, draft.guesses.nodes)


def write_program(lifted: Lifted, graph: Graph, path: Path) -> None:
    """Write a graph's program atomically: a protobuf (a tuning record without runs, for XLA's
    tools) if `path` ends with .pb, else HLO text. Raises InputError if jax, which writes text, is
    not installed; RefusedError if XLA rejects the module."""
    if path.suffix == PROTOBUF:
        record = MESSAGES["TuningRecord"](
            module=lifted.module, config_index_to_node=graph.configurable.tolist()
        )
        data = record.SerializeToString()
    else:
        data = print_hlo(lifted.module.SerializeToString()).encode()
    write_bytes(data, path)


def _check_operands(draft: Draft) -> None:
    """Raise NotLiftedError if a node has no operands, too many, or operands of unfit sizes."""
    for node, opcode in enumerate(draft.opcodes):
        most = MOST.get(opcode)
        if most is None:
            continue
        operands = draft.operands[node]
        if not operands:
            raise draft.refuse(node, "no edge says what it reads")
        if len(operands) > most:
            raise draft.refuse(node, f"it reads {len(operands)} nodes, but takes {most}")
        sizes = draft.sizes[node]
        for one in operands if draft.kinds[node] != TUPLE else ():
            read = draft.sizes[one]
            if read != sizes and not _is_fit(opcode, sizes, read):
                raise draft.refuse(node, f"its sizes {sizes} do not fit {read} of node {one}")


def _is_fit(opcode: str, sizes: tuple[int, ...], read: tuple[int, ...]) -> bool:
    """Return True if an opcode's result may have `sizes` although an operand has sizes `read`."""
    if opcode in ("select", "clamp"):
        return not read
    if opcode in REORDERS:
        return prod(read) == prod(sizes)
    if opcode == "broadcast":
        return prod(sizes) % max(1, prod(read)) == 0
    return opcode not in UNARY and opcode not in BINARY


class _Writer:
    """Writes the module of a draft whose operands and tuple types are known."""

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
        """Return a computation's name, which states its role, such as main or while_body.3."""
        draft = self._draft
        caller = draft.callers.get(number)
        if caller is None:
            return "main" if number == len(draft.ranges) - 1 else f"uncalled.{number}"
        if draft.opcodes[caller] != "while":
            return f"{draft.opcodes[caller].replace('-', '_')}.{number}"
        is_body = draft.roots[number] == self._types.loops[caller].body
        return f"while_body.{number}" if is_body else f"while_condition.{number}"

    def _make(self, node: int) -> Any:
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

    def _make_shape(self, kind: Type) -> Any:
        if kind not in self._shapes:
            if isinstance(kind, Parts):
                parts = [self._make_shape(part) for part in kind.parts]
                shape = MESSAGES["Shape"](element_type=TUPLE, tuple_shapes=parts)
            else:
                shape = MESSAGES["Shape"](element_type=kind.kind, dimensions=kind.sizes)
                if kind.kind != TOKEN:
                    shape.layout.minor_to_major.extend(kind.layout)
            self._shapes[kind] = shape
        return self._shapes[kind]
