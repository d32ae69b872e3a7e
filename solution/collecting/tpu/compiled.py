"""Represent the program that the TPU's compiler made for a configuration.

It is read from the optimised, scheduled module. Kernels are the instructions that take time; they
stand in the order in which the chip runs them, inside the loops and branches that contain them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Tensor:
    """The result of an instruction, and its position and layout in memory."""

    name: str  # of the instruction in the optimised module
    source: str  # its op_name, which names the original instruction
    opcode: str
    element_type: str  # such as bf16
    dimensions: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]  # of registers, such as (8, 128)
    memory_space: int  # 0: the large memory (HBM); others are on the chip (VMEM, SMEM)
    is_fused: bool  # inside a kernel: it is never written to memory

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
    """The sizes of the blocks that a kernel works on, in register tiles: TpuGraphs' tile sizes."""

    kernel: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    input: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cost:
    """The costs of a kernel in the compiler's cost model."""

    cycles: int | None = None  # None: it has no estimate for such a kernel
    tile: Tile | None = None


@dataclass(frozen=True)
class Kernel:
    """An instruction that occupies the chip for a time."""

    name: str
    source: str  # the op_name
    opcode: str
    kind: str  # its main computation: convolution, reduce, loop, copy, ...
    computes: tuple[str, ...]  # the opcodes inside, each once, in alphabetical order
    shapes: tuple[str, ...]  # of its results
    bytes: int  # read and written, including the padding of tiles
    hbm_bytes: int  # the part of these in HBM
    cost: Cost
    key: str  # a hash of its canonical form: equal kernels have equal costs
    trips: int = 1  # runs of the kernel per run of the program


@dataclass(frozen=True)
class Copy:
    """A tensor that is written in another layout, or into another memory."""

    name: str
    tensor: str  # the instruction that is copied
    shape: str  # without the layout
    source_layout: str
    target_layout: str
    bytes: int
    cycles: int | None
    is_beside: bool  # runs while kernels compute
    trips: int = 1


@dataclass(frozen=True)
class Begin:
    """The start of asynchronous work: a copy, or a computation of another engine."""

    name: str
    region: "Region | None"  # of an asynchronous computation; None: a copy
    bytes: int


@dataclass(frozen=True)
class Wait:
    """The point where the program waits for the work of a `Begin`."""

    name: str  # of the Begin


@dataclass(frozen=True)
class Loop:
    """A while loop."""

    body: "Region"
    condition: "Region"
    trips: int
    are_known: bool  # False: the module does not tell the trips


@dataclass(frozen=True)
class Branches:
    """A conditional: one of the regions is run."""

    regions: "tuple[Region, ...]"


Step = Kernel | Begin | Wait | Loop | Branches


@dataclass(frozen=True)
class Region:
    """Steps in the order in which they are run."""

    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class CompiledProgram:
    """The compiled form of a program in one configuration."""

    region: Region  # the entry computation
    copies: tuple[Copy, ...]
    tensors: tuple[Tensor, ...]  # of all instructions whose result is an array
    memory_bytes: int  # of HBM: arguments, results, constants and temporaries
    argument_bytes: int
    digest: str  # equal for configurations that compile to the same program

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return all kernels with their trips, including those in loops and branches."""
        return tuple(list_kernels(self.region))

    @property
    def unestimated(self) -> tuple[Kernel, ...]:
        """Return the kernels for which the compiler's cost model has no cycles."""
        return tuple(kernel for kernel in self.kernels if kernel.cost.cycles is None)


def list_kernels(region: Region, trips: int = 1) -> Iterator[Kernel]:
    """Yield the kernels of a region that is run `trips` times."""
    for step in region.steps:
        match step:
            case Kernel():
                values = {**step.__dict__, "trips": trips}
                yield Kernel(**values)
            case Begin(region=Region() as inner):
                yield from list_kernels(inner, trips)
            case Loop():
                yield from list_kernels(step.body, trips * step.trips)
                yield from list_kernels(step.condition, trips * (step.trips + 1))
            case Branches():
                for inner in step.regions:
                    yield from list_kernels(inner, trips)
