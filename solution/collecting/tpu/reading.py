"""Read a CompiledProgram from the modules that the TPU's compiler dumps.

Kernels are the instructions that take time. A kernel's canonical name is a hash of what it
computes; kernels with equal names have equal costs.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from solution.collecting.tpu.canonical import Instruction, Names
from solution.collecting.tpu.compiled import (
    Begin,
    Branches,
    CompiledProgram,
    Copy,
    Cost,
    Kernel,
    Loop,
    Region,
    Step,
    Tensor,
    Tile,
    Wait,
)
from solution.programs.arguments import TUPLE, TYPE_NAMES
from solution.programs.hlo.messages import MESSAGES, instructions

HBM = 0  # number of the chip's main memory as a memory space in layouts
FREE = {  # Opcodes that take no time: they only name values, or another instruction does the work.
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "add-dependency",
    "opt-barrier", "partition-id", "replica-id", "domain", "get-dimension-size",
}  # fmt: skip
# Custom calls that take no time: they reserve or name memory, or state a fact.
FREE_CALLS = {
    "AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast", "Sharding",
    "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
}  # fmt: skip
# Kinds of kernels that read only a part of an operand: at most as many bytes as they write.
PICKING = {"slice", "dynamic-slice", "gather"}
MAJOR_REDUCE = "major-reduce"  # kind of a reduction that keeps the minor dimension
BEGINS, WAITS, UPDATES = "-start", "-done", "-update"  # endings of asynchronous opcodes
MAIN = (  # A kernel's kind is the first of these opcodes that the kernel contains.
    "convolution", "dot", "select-and-scatter", "reduce-window", "scatter", "gather", "sort",
    "reduce", "dynamic-update-slice", "dynamic-slice", "transpose", "copy", "concatenate", "pad",
    "reverse",
)  # fmt: skip
DEFAULT_TRIPS = 10  # assumed iterations of a loop whose number the module does not state
# bits per element of types whose name does not state them
BITS = {"pred": 8, "token": 0, "opaque": 0, "tuple": 0}


@dataclass(frozen=True)
class Learned:
    """The costs, found by a full compilation, of the kernels that the passes over HLO made."""

    costs: dict[str, Cost]  # {canonical name of a kernel: its cost}
    conflicts: int  # number of kernels that have another cost than a kernel of the same name
    is_same: bool  # False: the full compilation restarted and made other kernels


@dataclass
class _Reading:
    """State of a call of Reader.read: {canonical name: cost}, and the copies found so far."""

    costs: Mapping[str, Cost]
    copies: list[Copy] = field(default_factory=list)


class Reader:
    """Reads the program, its kernels and their costs from the dumps of one compilation."""

    def __init__(self, passed: bytes) -> None:
        """Parse the result of the passes over HLO, a serialized OptimisedModule."""
        dump = MESSAGES["OptimisedModule"].FromString(passed)
        self.names = Names(dump.module)
        self._buffers = dump.buffer_assignment.buffer_allocations
        self._kernels = [
            (self.names.name_kernel(instruction), instruction)
            for computation in _find_run(self.names)
            for instruction in computation.instructions
            if self.takes_time(instruction)
        ]
        self._keys = {instruction.id: key for key, instruction in self._kernels}

    @property
    def keys(self) -> set[str]:
        """The canonical names of all kernels."""
        return set(self._keys.values())

    def find_kernels(self, keys: Iterable[str]) -> dict[str, Instruction]:
        """Return {canonical name: a kernel with this name} for the names in `keys` that occur."""
        wanted = set(keys)
        return {key: instruction for key, instruction in self._kernels if key in wanted}

    @property
    def beside(self) -> set[str]:
        """The canonical names of kernels in asynchronous computations, which run on another engine.
        The compiler's cost model has no cycles for them."""
        return {
            self._keys[inner.id]
            for run in _find_run(self.names)
            for instruction in run.instructions
            if instruction.opcode == "async-start"
            for computation in self.names.called(instruction)
            for inner in computation.instructions
            if inner.id in self._keys
        }

    def learn(self, generated: bytes) -> Learned:
        """Return the costs of the kernels, read from `generated`, the module of a full
        compilation."""
        module = MESSAGES["OptimisedModule"].FromString(generated).module
        found = {instruction.name: read_cost(instruction) for instruction in instructions(module)}
        costs: dict[str, Cost] = {}
        conflicts, is_same = 0, True
        for key, instruction in self._kernels:
            is_same &= instruction.name in found
            cost = found.get(instruction.name, Cost())
            conflicts += costs.setdefault(key, cost) != cost
        return Learned(costs, conflicts, is_same)

    def read(self, costs: Mapping[str, Cost]) -> CompiledProgram:
        """Return the compiled program. `costs`: {canonical name: cost} of its kernels."""
        reading = _Reading(costs)
        region = self._read_region(self.names.entry, 1, reading)
        return CompiledProgram(
            region=region,
            copies=tuple(reading.copies),
            tensors=tuple(self._read_tensors()),
            memory_bytes=sum(
                buffer.size
                for buffer in self._buffers
                if buffer.color == HBM and not buffer.is_thread_local
            ),
            digest=self.names.program,
        )

    def _read_region(self, computation: Any, trips: int, reading: _Reading) -> Region:
        """Return the steps of a computation that runs `trips` times; add copies to `reading`."""
        steps: list[Step] = []
        # {id of an asynchronous instruction: name of the Begin that started its work}
        begun: dict[int, str] = {}
        for instruction in self.names.order(computation):
            called = self.names.called(instruction)
            opcode = instruction.opcode
            if opcode == "while":
                steps.append(self._read_loop(instruction, trips, reading))
            elif opcode == "conditional":
                inner = (self._read_region(branch, trips, reading) for branch in called)
                steps.append(Branches(tuple(inner)))
            elif opcode == "call":
                steps += self._read_region(called[0], trips, reading).steps
            elif opcode.endswith(BEGINS):
                begun[instruction.id] = instruction.name
                steps.append(self._read_begin(instruction, trips, reading))
            elif opcode.endswith(UPDATES):
                begun[instruction.id] = begun.get(instruction.operand_ids[0], "")
            elif opcode.endswith(WAITS):
                steps.append(Wait(begun.get(instruction.operand_ids[0], "")))
            elif instruction.id in self._keys:
                kernel = self._read_kernel(instruction, reading.costs)
                steps.append(kernel)
                if opcode == "copy":
                    reading.copies.append(self._read_copy(instruction, kernel.cost.cycles, trips))
        return Region(tuple(steps))

    def _read_loop(self, instruction: Instruction, trips: int, reading: _Reading) -> Loop:
        body, condition = self.names.called(instruction)
        known = find_trips(instruction, condition)
        count = DEFAULT_TRIPS if known is None else known
        return Loop(
            self._read_region(body, trips * count, reading),
            self._read_region(condition, trips * (count + 1), reading),
            count,
        )

    def _read_begin(self, instruction: Instruction, trips: int, reading: _Reading) -> Begin:
        if instruction.opcode == "copy-start":
            reading.copies.append(self._read_copy(instruction, None, trips))
        called = self.names.called(instruction)
        region = None
        if instruction.opcode == "async-start" and called:
            region = self._read_region(called[0], trips, reading)
        # Bytes of HBM that a copy reads and writes; its result is (target, source, context).
        moved = _sum_bytes(_in_hbm(open_tuple(instruction.shape)[:2]))
        return Begin(instruction.name, region, moved)

    def _read_kernel(self, instruction: Instruction, costs: Mapping[str, Cost]) -> Kernel:
        inside = self._list_inside(instruction)
        key = self._keys[instruction.id]
        kind = self._name_kind(instruction, inside)
        results = open_tuple(instruction.shape)
        operands = [
            part for found in self.names.operands(instruction) for part in open_tuple(found.shape)
        ]
        written = sum(count_bytes(shape) for shape in results)
        most = written if kind in PICKING else None
        return Kernel(
            name=instruction.name,
            source=instruction.metadata.op_name,
            opcode=instruction.opcode,
            kind=kind,
            shapes=tuple(spell(shape) for shape in results),
            bytes=written + _sum_bytes(operands, most),
            hbm_bytes=_sum_bytes(_in_hbm(results)) + _sum_bytes(_in_hbm(operands), most),
            cost=costs.get(key, Cost()),
            key=key,
        )

    def _list_inside(self, instruction: Instruction) -> list[Instruction]:
        """Return the instructions inside a kernel: if it is a fusion, all of its instructions that
        are not FREE, nested fusions included; otherwise the kernel itself."""
        if instruction.opcode != "fusion":
            return [instruction]
        return [
            found
            for computation in self.names.called(instruction)
            for inner in computation.instructions
            for found in self._list_inside(inner)
            if found.opcode not in FREE
        ]

    def _name_kind(self, instruction: Instruction, inside: Sequence[Instruction]) -> str:
        """Return the kind of a kernel: the first entry of MAIN that is among its opcodes; otherwise
        `loop` for a fusion, or the kernel's opcode.

        A reduction that keeps the minor dimension has the kind MAJOR_REDUCE.
        """
        opcodes = {inner.opcode for inner in inside}
        kind = next((name for name in MAIN if name in opcodes), "")
        if kind == "reduce":
            across = (self._sums_lanes(inner) for inner in inside if inner.opcode == kind)
            return kind if any(across) else MAJOR_REDUCE
        return kind or ("loop" if instruction.opcode == "fusion" else str(instruction.opcode))

    def _sums_lanes(self, reduction: Instruction) -> bool:
        """Return True if a reduction includes the minor dimension, so it sums across register
        lanes."""
        order = self.names.operands(reduction)[0].shape.layout.minor_to_major
        return not order or order[0] in reduction.dimensions

    def takes_time(self, instruction: Instruction) -> bool:
        """Return True if an instruction is a kernel: it takes time, and is not asynchronous. Scalar
        instructions do not count, because they take only a few cycles."""
        opcode = instruction.opcode
        if opcode in FREE or opcode in ("while", "conditional", "call"):
            return False
        if opcode.endswith((BEGINS, WAITS, UPDATES)):
            return False
        if opcode == "custom-call" and instruction.custom_call_target in FREE_CALLS:
            return False
        shapes = [instruction.shape, *(found.shape for found in self.names.operands(instruction))]
        return any(part.dimensions for shape in shapes for part in open_tuple(shape))

    def _read_copy(self, instruction: Instruction, cycles: int | None, trips: int) -> Copy:
        (operand,) = self.names.operands(instruction)[:1]
        target = open_tuple(instruction.shape)[0]
        return Copy(
            name=instruction.name,
            tensor=operand.name,
            shape=spell(target).partition("{")[0],
            source_layout=_spell_layout(operand.shape),
            target_layout=_spell_layout(target),
            bytes=count_bytes(target),
            cycles=cycles,
            is_beside=instruction.opcode != "copy",
            trips=trips,
        )

    def _read_tensors(self) -> list[Tensor]:
        run = {computation.id for computation in _find_run(self.names)}
        return [
            make_tensor(instruction, is_fused=computation.id not in run)
            for computation in self.names.computations.values()
            for instruction in computation.instructions
            if instruction.shape.element_type != TUPLE
        ]


def _find_run(names: Names) -> list[Any]:
    """Return the entry and the computations that are called by loops, conditionals, calls and
    async-start. Computations inside kernels, such as fusions, are left out."""
    found: dict[int, Any] = {}
    waiting = [names.entry]
    while waiting:
        computation = waiting.pop()
        if computation.id in found:
            continue
        found[computation.id] = computation
        for instruction in computation.instructions:
            if instruction.opcode in ("while", "conditional", "call", "async-start"):
                waiting += names.called(instruction)
    return list(found.values())


def read_cost(instruction: Instruction) -> Cost:
    """Return an instruction's cost: cycles and tile, which code generation writes into its
    backend_config."""
    window = _read_config(instruction).get("window_config", {})
    if not window:
        return Cost()
    cycles = int(window.get("estimated_cycles", 0))
    bounds = (
        tuple(int(size) for size in window.get(f"{name}_window_bounds", ()))
        for name in ("kernel", "output", "input")
    )
    tile = Tile(*bounds)
    return Cost(cycles or None, None if tile == Tile() else tile)


def find_trips(instruction: Instruction, condition: Any) -> int | None:
    """Return a loop's number of iterations; None if the module does not state it.

    The compiler writes the number if it knows it. Otherwise a condition `counter < constant` states
    it: the counter is assumed to begin at 0 and to grow by one, as in jax's loops.
    """
    known = _read_config(instruction).get("known_trip_count", {}).get("n")
    if known is not None:
        return int(known)
    by_id = {inner.id: inner for inner in condition.instructions}
    root = by_id[condition.root_id]
    if root.opcode != "compare" or root.comparison_direction != "LT":
        return None
    bound = by_id[root.operand_ids[1]]
    literal = bound.literal
    values = [*literal.s32s, *literal.s64s, *literal.u32s, *literal.u64s]
    return int(values[0]) if bound.opcode == "constant" and len(values) == 1 else None


def _read_config(instruction: Instruction) -> dict[str, Any]:
    try:
        found = json.loads(instruction.backend_config or b"{}")
    except ValueError:  # the configuration is not JSON: another backend wrote it
        return {}
    return found if isinstance(found, dict) else {}


def open_tuple(shape: Any) -> list[Any]:
    """Return the array shapes in a shape: [shape] for an array; for a tuple the shapes of its
    elements, and of the elements of nested tuples."""
    if shape.element_type != TUPLE:
        return [shape]
    return [part for inner in shape.tuple_shapes for part in open_tuple(inner)]


def count_bytes(shape: Any) -> int:
    """Return the bytes of an array in memory, with its minor dimensions padded to whole tiles."""
    # sizes of the dimensions, the most minor one first
    sizes = [shape.dimensions[axis] for axis in shape.layout.minor_to_major]
    if shape.layout.tiles:
        for axis, tile in enumerate(reversed(shape.layout.tiles[0].dimensions)):
            if axis < len(sizes):
                sizes[axis] = -(-sizes[axis] // tile) * tile  # rounded up to whole tiles
    return prod(sizes) * _count_bits(shape.element_type) // 8


def _in_hbm(shapes: Iterable[Any]) -> list[Any]:
    return [shape for shape in shapes if shape.layout.memory_space == HBM]


def _sum_bytes(shapes: Iterable[Any], most: int | None = None) -> int:
    """Return the sum of arrays' bytes; an array counts at most `most` bytes (None: no limit)."""
    sizes = (count_bytes(shape) for shape in shapes)
    return sum(size if most is None else min(size, most) for size in sizes)


def _count_bits(element_type: int) -> int:
    """Return the bits of an element, the first number in its type's name: 8 of f8e4m3."""
    name = TYPE_NAMES[element_type]
    return BITS[name] if name in BITS else int(re.findall(r"\d+", name)[0])


def make_tensor(instruction: Instruction, *, is_fused: bool) -> Tensor:
    """Return an instruction's result as a Tensor; `is_fused`: it is inside a kernel."""
    shape = instruction.shape
    return Tensor(
        name=instruction.name,
        source=instruction.metadata.op_name,
        opcode=instruction.opcode,
        element_type=TYPE_NAMES[shape.element_type],
        dimensions=tuple(shape.dimensions),
        minor_to_major=tuple(shape.layout.minor_to_major),
        tiles=tuple(tuple(tile.dimensions) for tile in shape.layout.tiles),
        memory_space=shape.layout.memory_space,
        is_fused=is_fused,
    )


def spell(shape: Any) -> str:
    """Return an array's shape in XLA's notation, such as f32[16,64]{1,0:T(8,128)}."""
    instruction = MESSAGES["Instruction"](shape=shape)
    return make_tensor(instruction, is_fused=False).shape


def _spell_layout(shape: Any) -> str:
    return "{" + spell(shape).partition("{")[2]
