"""Represent the program that the TPU's compiler made for a configuration.

It is read from the optimised, scheduled module. Kernels are the instructions that take time. They
are listed in the order in which the chip runs them, nested in loops and branches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property


@dataclass(frozen=True)
class Tensor:
    """An array that an instruction computes: its shape, layout and memory space."""

    name: str  # the instruction's name in the optimised module
    source: str  # op_name: the instruction of the original program from which this one was compiled
    opcode: str
    element_type: str  # type of the elements, such as bf16
    dimensions: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    # sizes of the tiles that the layout stores contiguously, such as (8, 128)
    tiles: tuple[tuple[int, ...], ...]
    memory_space: int  # 0: the chip's main memory (HBM); other numbers: on the chip (VMEM, SMEM)
    is_fused: bool  # True: inside a kernel, so never written to memory

    @property
    def layout(self) -> str:
        """Return the layout in XLA's notation: {1,0:T(8,128)S(1)}."""
        tiles = "".join(f"({','.join(map(str, tile))})" for tile in self.tiles)
        space = f"S({self.memory_space})" if self.memory_space else ""
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}{':T' if tiles else ':' if space else ''}{tiles}{space}}}"

    @property
    def shape(self) -> str:
        """Return the shape in XLA's notation: f32[16,64]{1,0:T(8,128)}."""
        return f"{self.element_type}[{','.join(map(str, self.dimensions))}]{self.layout}"


@dataclass(frozen=True)
class Tile:
    """Sizes of the blocks of data that a kernel works on, counted in register tiles: the sizes that
    TpuGraphs' tile configurations set."""

    kernel: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    input: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cost:
    """The cost of a kernel and its tile, by the compiler's cost model."""

    cycles: int | None = None  # None: the cost model has no estimate for the kernel
    tile: Tile | None = None


@dataclass(frozen=True)
class Kernel:
    """An instruction that takes time on the chip."""

    name: str
    source: str  # the instruction's op_name, which names the original instruction
    opcode: str
    kind: str  # opcode of the main computation inside (reduce, copy, ...), major-reduce or loop
    shapes: tuple[str, ...]  # shapes of the kernel's results, such as f32[16,64]{1,0:T(8,128)}
    bytes: int  # bytes read and written, including the padding of tiles
    hbm_bytes: int  # the part of `bytes` that is read from and written to HBM
    cost: Cost
    key: str  # canonical name (a hash): kernels with equal keys have equal costs
    trips: int = 1  # how often the kernel runs in one run of the program


@dataclass(frozen=True)
class Copy:
    """A copy of a tensor into another layout, or into another memory space."""

    name: str
    tensor: str  # name of the instruction whose result is copied
    shape: str  # element type and dimensions, such as f32[16,64], without the layout
    source_layout: str
    target_layout: str
    bytes: int
    cycles: int | None  # estimated cycles; None: asynchronous, or without an estimate
    is_beside: bool  # True: an asynchronous copy, which runs while kernels compute
    trips: int = 1  # how often the copy is made in one run of the program


@dataclass(frozen=True)
class Begin:
    """The start of asynchronous work: a copy, or a computation on another engine."""

    name: str
    region: "Region | None"  # the asynchronous computation; None if the work is a copy
    bytes: int


@dataclass(frozen=True)
class Wait:
    """The point where the program waits for the end of the work that a `Begin` started."""

    name: str  # name of the `Begin` that started the work


@dataclass(frozen=True)
class Loop:
    """A while loop; `trips` is the number of iterations."""

    body: "Region"
    condition: "Region"
    trips: int


@dataclass(frozen=True)
class Branches:
    """A conditional: a run of the program runs one of its regions."""

    regions: "tuple[Region, ...]"


Step = Kernel | Begin | Wait | Loop | Branches


@dataclass(frozen=True)
class Region:
    """A sequence of steps (kernels, asynchronous work, loops, conditionals) in the order of
    execution."""

    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class CompiledProgram:
    """The compiled form of a program in one configuration."""

    region: Region  # the steps of the entry computation
    copies: tuple[Copy, ...]
    tensors: tuple[Tensor, ...]  # one for each instruction whose result is an array
    memory_bytes: int  # bytes of HBM in use: arguments, results, constants and temporaries
    digest: str  # hash of the program; equal if two configurations compile to the same program

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return all kernels, including those in loops and branches; `trips` counts all runs."""
        return tuple(list_kernels(self.region))


def list_kernels(region: Region, trips: int = 1) -> Iterator[Kernel]:
    """Yield the kernels of a region that is run `trips` times."""
    for step in region.steps:
        match step:
            case Kernel():
                yield replace(step, trips=trips)
            case Begin(region=Region() as inner):
                yield from list_kernels(inner, trips)
            case Loop():
                yield from list_kernels(step.body, trips * step.trips)
                yield from list_kernels(step.condition, trips * (step.trips + 1))
            case Branches():
                for inner in step.regions:
                    yield from list_kernels(inner, trips)
