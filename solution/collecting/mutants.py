"""Make wrong versions of a program, to test whether a comparison of results notices them.

A mutant is the program with an error in the result of one product (dot or convolution), as a
defective kernel would make it. A site is a product whose result mutants change. All mutants of a
program are in one module, which is compiled once: it has an additional parameter, an array with a
switch (boolean) for each mutant. The switches are passed into calls, loops and conditionals.
"""

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

from solution.programs.arguments import find_entry
from solution.programs.hlo.messages import MESSAGES, copy_message, instructions
from solution.programs.portable import FreshIds, make_portable, make_shape, replace_instructions

PRED, TUPLE = 1, 13  # element types, as numbers of XLA's PrimitiveType
PRODUCTS = ("dot", "convolution")
# maximum number of sites of a program, evenly spaced over its products; each mutant costs a run
MAX_SITES = 48
OF_A_FORM = 3  # maximum number of sites of one form (Site.form); the last ones are chosen
BLOCK = 8  # wrong elements at the end of the last dimension, at most 1 / EIGHTH of its elements
EIGHTH = 8
OFF = 0  # index of a switch that is never on: it supplies the value False
CALLS = ("call", "fusion")


class Kind(IntEnum):
    """The error that a mutant makes in a product's result. The last block is the last BLOCK
    elements (at most an eighth) along the last dimension."""

    ZERO = 0  # the last block is 0
    SHIFT = 1  # the last block equals the block before it
    TWICE = 2  # the last block is doubled
    REVERSE = 3  # the elements are in reverse order, along all dimensions


@dataclass(frozen=True)
class Site:
    """A product (dot or convolution) whose result mutants make wrong."""

    name: str
    opcode: str
    # opcode, element types, sizes and dimension numbers, in words: dots or convolutions of one form
    # are computed by the same kernel
    form: str
    # errors that can change the result; only ZERO if the result is a single number
    kinds: tuple[Kind, ...]
    first: int  # index of the switch for kinds[0]; the switches of the other kinds follow


@dataclass(frozen=True)
class Mutants:
    """All mutants of a program, as one module."""

    module: bytes
    sites: tuple[Site, ...]
    # number of booleans in the module's last parameter; each but the first turns on one mutant
    switches: int


def make_mutants(module: Any) -> Mutants:
    """Return the mutants of a program (message Module); `sites` is empty if it has no dot and
    no convolution."""
    copy = make_portable(module)
    ways = _find_ways(copy)
    reached = _find_reached(copy, ways)
    found = [
        i for c in copy.computations if c.id in reached for i in c.instructions
        if i.opcode in PRODUCTS and i.id in reached[c.id] and prod(i.shape.dimensions)
    ]  # fmt: skip
    chosen = _choose(found, copy)
    sites, switches = list[Site](), OFF + 1
    for node, form in chosen:
        kinds = (Kind.ZERO,) if _find_axis(list(node.shape.dimensions)) is None else tuple(Kind)
        sites.append(Site(node.name, node.opcode, form, kinds, switches))
        switches += len(kinds)
    if sites:
        by_number = {node.id: site for (node, _), site in zip(chosen, sites, strict=True)}
        _Writer(copy, by_number, switches, ways).write()
    return Mutants(bytes(copy.SerializeToString()), tuple(sites), switches)


def _find_ways(module: Any) -> dict[int, str]:
    """Return {computation id: how it is called}: "call" (call or fusion), "while" (a loop's body),
    "condition" (of a loop) or "conditional" (a branch). Computations that are called in another
    way, in several ways, or by a loop whose state is no tuple are left out."""
    ways: dict[int, set[str]] = {}
    for node in instructions(module):
        way = "call" if node.opcode in CALLS else node.opcode
        if way == "while" and node.shape.element_type != TUPLE:
            way = "other"
        # number 0 is a loop's body. The mutants' switches are part of the loop's state: the body
        # takes and returns them, the condition only takes them.
        for number, called in enumerate(node.called_computation_ids):
            ways.setdefault(called, set()).add("condition" if way == "while" and number else way)
    return {
        called: way
        for called, (way, *others) in ways.items()
        if not others and way in ("call", "while", "condition", "conditional")
    }


def _is_entered(node: Any, ways: dict[int, str]) -> bool:
    """Return True if an instruction passes the mutants' switches to the computations it calls."""
    called = node.called_computation_ids
    is_call = node.opcode in (*CALLS, "while", "conditional")
    return bool(is_call and called and all(number in ways for number in called))


def _find_reached(module: Any, ways: dict[int, str]) -> dict[int, set[int]]:
    """Return {computation id: ids of the instructions that its root depends on}, for the entry and
    the computations that it reaches through calls in `ways`."""
    computations = {c.id: c for c in module.computations}
    reached: dict[int, set[int]] = {}
    waiting = [find_entry(module).id]
    while waiting:
        computation = computations[waiting.pop()]
        if computation.id in reached:
            continue
        nodes = {i.id: i for i in computation.instructions}
        live, left = set[int](), [computation.root_id]
        while left:
            number = left.pop()
            if number in live or number not in nodes:
                continue
            live.add(number)
            left += nodes[number].operand_ids
            if _is_entered(nodes[number], ways):
                waiting += nodes[number].called_computation_ids
        reached[computation.id] = live
    return reached


def _choose(found: list[Any], module: Any) -> list[tuple[Any, str]]:
    """Choose at most MAX_SITES of the products (dots and convolutions) in `found` to mutate, at
    most OF_A_FORM of each form. Return (product, form) of each, in reverse program order. The form
    is a text of opcode, element types, sizes and dimension numbers."""
    shapes = {i.id: i.shape for i in instructions(module)}
    counts: Counter[str] = Counter()
    chosen = []
    for node in reversed(found):
        form = _describe_form(node, shapes)
        counts[form] += 1
        if counts[form] <= OF_A_FORM:
            chosen.append((node, form))
    if len(chosen) <= MAX_SITES:
        return chosen
    return [chosen[n * (len(chosen) - 1) // (MAX_SITES - 1)] for n in range(MAX_SITES)]


def _describe_form(node: Any, shapes: dict[int, Any]) -> str:
    tensors = [node.shape, *(shapes[operand] for operand in node.operand_ids)]
    sizes = [(shape.element_type, *shape.dimensions) for shape in tensors]
    return f"{node.opcode} {sizes} {node.dot} {node.convolution} {node.window}"


def _find_axis(sizes: list[int]) -> int | None:
    """Return the index of the last dimension with more than one element; None if there is none."""
    return max((axis for axis, size in enumerate(sizes) if size > 1), default=None)


class _Writer:
    """Rewrites a module so that it contains all of its mutants, with a switch for each."""

    def __init__(
        self, module: Any, sites: dict[int, Site], switches: int, ways: dict[int, str]
    ) -> None:
        self._module, self._sites, self._ways = module, sites, ways
        self._fresh = FreshIds(module)
        self._switches = make_shape(PRED, [switches])
        self._computations = {c.id: c for c in module.computations}
        # {computation id: original shape of its parameter}, used for branches of conditionals
        self._parameter_shapes = {
            c.id: copy_message(i.shape)
            for c in module.computations for i in c.instructions if i.opcode == "parameter"
        }  # fmt: skip

    def write(self) -> None:
        """Rewrite, in place, all computations that get the mutants' switches. The entry gets them
        as its last parameter."""
        entered = [find_entry(self._module).id]
        for number in entered:  # the loop's body appends to `entered`
            for node in self._computations[number].instructions:
                if _is_entered(node, self._ways):
                    entered += [n for n in node.called_computation_ids if n not in entered]
        for number in entered:
            self._rewrite(self._computations[number], self._ways.get(number, "call"))
        shape = self._module.host_program_shape
        shape.parameters.append(self._switches)
        shape.parameter_names.append("switches")

    def _rewrite(self, computation: Any, way: str) -> None:
        written: list[Any] = []
        parameters = [i for i in computation.instructions if i.opcode == "parameter"]
        switches = self._take_switches(parameters, way, written)
        renamed: dict[int, int] = {}
        for node in computation.instructions:
            node.operand_ids[:] = [renamed.get(operand, operand) for operand in node.operand_ids]
            if way != "call" and node.opcode == "parameter":
                continue  # `_take_switches` has written an instruction with the same id instead
            if node.id in self._sites:
                renamed[node.id] = self._mutate(node, self._sites[node.id], switches, written)
            elif _is_entered(node, self._ways):
                self._pass_switches(node, switches, written)
            else:
                written.append(node)
        root = renamed.get(computation.root_id, computation.root_id)
        if way == "while":
            shape = next(i.shape for i in written if i.id == root)
            root = self._extend_value(root, shape, written, switches)
        computation.root_id = root
        replace_instructions(computation, written)

    def _take_switches(self, parameters: list[Any], way: str, written: list[Any]) -> int:
        """Append to `written` the parameter with the mutants' switches; return the switches' id.
        `way`: how the computation is called, see _find_ways."""
        if way == "call":
            return self._add(written, "parameter", self._switches, number=len(parameters))
        (old,) = parameters
        if way != "conditional":
            shape = self._extend_shape(old.shape)
            whole = self._add(written, "parameter", shape)
            self._part(written, whole, shape, old)
            return self._element(written, whole, shape, len(shape.tuple_shapes) - 1)
        # a branch has one argument: (its earlier argument, the switches)
        shape = _make_tuple([old.shape, self._switches])
        whole = self._add(written, "parameter", shape)
        written.append(
            MESSAGES["Instruction"](
                id=old.id, name=old.name, opcode="get-tuple-element", shape=old.shape,
                operand_ids=[whole], tuple_index=0,
            )
        )  # fmt: skip
        return self._element(written, whole, shape, 1)

    def _pass_switches(self, node: Any, switches: int, written: list[Any]) -> None:
        """Append to `written` an instruction that calls computations, with the mutants' switches
        among its arguments."""
        if node.opcode in CALLS:
            node.operand_ids.append(switches)
            written.append(node)
        elif node.opcode == "conditional":
            for branch, called in enumerate(node.called_computation_ids, 1):
                both = _make_tuple([self._parameter_shapes[called], self._switches])
                given = [node.operand_ids[branch], switches]
                node.operand_ids[branch] = self._add(written, "tuple", both, given)
            written.append(node)
        else:
            old = copy_message(node)
            shape = self._extend_shape(node.shape)
            node.operand_ids[:] = [
                self._extend_value(node.operand_ids[0], node.shape, written, switches)
            ]
            node.id = self._fresh.take()
            node.name = f"while.{node.id}"
            node.shape.CopyFrom(shape)
            written.append(node)
            self._part(written, node.id, shape, old)

    def _extend_value(self, value: int, shape: Any, written: list[Any], switches: int) -> int:
        """Append to `written` a copy of the tuple `value` with the mutants' switches as last
        element; return its id."""
        elements = [self._element(written, value, shape, n) for n in range(len(shape.tuple_shapes))]
        return self._add(written, "tuple", self._extend_shape(shape), [*elements, switches])

    def _part(self, written: list[Any], whole: int, shape: Any, old: Any) -> None:
        """Append to `written` the tuple `whole` (an id, of shape `shape`) without its last element,
        the mutants' switches. The new tuple has the id, name and shape of `old`."""
        count = len(old.shape.tuple_shapes)
        elements = [self._element(written, whole, shape, n) for n in range(count)]
        written.append(
            MESSAGES["Instruction"](
                id=old.id, name=old.name, opcode="tuple", shape=old.shape, operand_ids=elements
            )
        )

    def _element(self, written: list[Any], value: int, shape: Any, index: int) -> int:
        part = shape.tuple_shapes[index]
        return self._add(written, "get-tuple-element", part, [value], index=index)

    def _extend_shape(self, shape: Any) -> Any:
        return _make_tuple([*shape.tuple_shapes, self._switches])

    def _mutate(self, node: Any, site: Site, switches: int, written: list[Any]) -> int:
        """Append to `written` a product (`node`) and its wrong results, and for each wrong result a
        select that its switch controls; return the last select's id, which replaces the product."""
        written.append(node)
        value = int(node.id)
        for number, kind in enumerate(site.kinds, site.first):
            wrong = self._make_wrong(node, kind, switches, written)
            switch = self._switch(switches, number, node.shape, written)
            value = self._add(written, "select", node.shape, [switch, wrong, value])
        return value

    def _switch(self, switches: int, number: int, shape: Any, written: list[Any]) -> int:
        """Append to `written` element `number` of the mutants' `switches` (an id), broadcast to the
        sizes of `shape`; return the broadcast's id."""
        one = self._add(
            written, "slice", make_shape(PRED, [1]), [switches], slices=[(number, number + 1)]
        )
        scalar = self._add(written, "reshape", make_shape(PRED, []), [one])
        sizes = list(shape.dimensions)
        return self._add(written, "broadcast", make_shape(PRED, sizes), [scalar])

    def _make_wrong(self, node: Any, kind: Kind, switches: int, written: list[Any]) -> int:
        """Append a wrong result of a product, with an error `kind`, to `written`; return its id."""
        sizes, axis = list(node.shape.dimensions), _find_axis(list(node.shape.dimensions))
        if kind == Kind.REVERSE:
            return self._add(
                written, "reverse", node.shape, [node.id], dimensions=range(len(sizes))
            )
        if axis is None:
            return self._make_zeros(node.shape, sizes, switches, written)
        block = max(1, min(BLOCK, sizes[axis] // EIGHTH))
        begin = sizes[axis] - block
        kept = self._cut(node, axis, 0, begin, written)
        if kind == Kind.ZERO:
            cut = [*sizes[:axis], block, *sizes[axis + 1 :]]
            last = self._make_zeros(node.shape, cut, switches, written)
        elif kind == Kind.SHIFT:
            last = self._cut(node, axis, begin - block, begin, written)
        else:
            once = self._cut(node, axis, begin, sizes[axis], written)
            shape = next(i.shape for i in written if i.id == once)
            last = self._add(written, "add", shape, [once, once])
        return self._add(written, "concatenate", node.shape, [kept, last], dimensions=[axis])

    def _make_zeros(self, like: Any, sizes: list[int], switches: int, written: list[Any]) -> int:
        """Append to `written` a tensor of zeros: the switch that is always off, broadcast to
        `sizes` and converted to the element type of `like`. Return its id."""
        shape = make_shape(like.element_type, sizes)
        false = self._switch(switches, OFF, shape, written)
        return self._add(written, "convert", shape, [false])

    def _cut(self, node: Any, axis: int, begin: int, end: int, written: list[Any]) -> int:
        sizes = list(node.shape.dimensions)
        slices = [(0, size) for size in sizes]
        slices[axis] = (begin, end)
        cut = [stop - start for start, stop in slices]
        shape = make_shape(node.shape.element_type, cut)
        return self._add(written, "slice", shape, [node.id], slices=slices)

    def _add(
        self, written: list[Any], opcode: str, shape: Any, operands: list[int] | None = None, *,
        number: int = 0, index: int = 0, slices: Any = (), dimensions: Any = (),
    ) -> int:  # fmt: skip
        added = self._fresh.take()
        node = MESSAGES["Instruction"](
            id=added, name=f"{opcode}.{added}", opcode=opcode, shape=shape,
            operand_ids=operands or [], parameter_number=number, tuple_index=index,
            dimensions=list(dimensions),
        )  # fmt: skip
        for start, limit in slices:
            node.slices.add(start=start, limit=limit, stride=1)
        written.append(node)
        return added


def _make_tuple(shapes: list[Any]) -> Any:
    return MESSAGES["Shape"](element_type=TUPLE, tuple_shapes=shapes)
