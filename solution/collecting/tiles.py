"""Set the tile sizes of the loops that XLA generates for a matrix product on a CPU.

A tile has three sizes: rows of the output, summed elements, and vectors per row. Compiler flags set
them. Runtimes of tiles differ by a factor of three to six. Some tiles are wrong: a tile wider than
the remainder at a ragged edge gives wrong numbers, and very large tiles take all memory. So the
results of every tile are compared with the default program's.
"""

import platform
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from solution.programs.compiler import Flags
from solution.programs.hlo.messages import instructions
from solution.programs.program import Program
from solution.system.errors import InputError

# flags that stop libraries from computing the matrix product, so that XLA generates loops for it
LIBRARIES_OFF = (
    ("xla_cpu_multi_thread_eigen", False),
    ("xla_cpu_experimental_ynn_fusion_type", ""),
    ("xla_cpu_use_xnnpack", False),
    ("xla_cpu_use_onednn", False),
)
FORCE, SIZE = "xla_force_enable_experimental_llvm_ir_gemm", "xla_llvm_ir_gemm_tile_size"
# candidate sizes of tiles; see find_product for the combinations that are tiles
ROWS = (1, 2, 3, 4, 6, 8, 11, 16, 24, 32)
SUMS = (1, 2, 4, 8, 9, 16, 32)
VECTORS = (1, 2, 3, 4)
DEFAULT = (11, 9, 1)  # XLA's tile if no size is given
MAX_UNROLLED = 1024  # rows x sums x vectors: the code of larger tiles takes minutes to compile
# {architecture: bytes of the vectors that XLA prefers}; for other processors, 16 is assumed
VECTOR_BYTES = {"x86_64": 32, "AMD64": 32}
# bytes of float32 and float64, by their numbers in XLA's PrimitiveType
FLOAT_BYTES = {11: 4, 12: 8}


@dataclass(frozen=True, eq=False)
class Product:
    """The only matrix product of a program, and the tiles that it may have."""

    batch: int  # number of batch dimensions
    width: int  # how many numbers fit into a vector
    tiles: np.ndarray  # (tiles, 3) int16: rows, summed elements, vectors; in ascending order

    def write(self, tile: np.ndarray, run: Any) -> None:
        """Write a tile (rows, sums, vectors) into a message Run, with all sizes in elements."""
        rows, sums, vectors = tile.tolist()
        run.tile.sizes.output_bounds[:] = [*[1] * self.batch, rows, vectors * self.width]
        run.tile.sizes.input_bounds[:] = [sums]


def find_product(program: Program) -> Product:
    """Return a program's matrix product and all tiles that fit it; InputError if the program does
    not have exactly one matrix product."""
    dot, (rows, sums, columns) = _find_dot(program)
    size = VECTOR_BYTES.get(platform.machine(), 16)
    width = size // FLOAT_BYTES[dot.shape.element_type]
    grid = [
        (row, inner, vectors)
        for row, inner, vectors in product(ROWS, SUMS, VECTORS)
        if row <= rows and inner <= sums and vectors * width <= max(columns, width)
        if row * inner * vectors <= MAX_UNROLLED
    ]
    tiles = np.array(sorted({*grid, DEFAULT}), np.int16)
    return Product(len(dot.shape.dimensions) - 2, width, tiles)


def find_tile_flags(tile: np.ndarray) -> Flags:
    """Return the compiler's flags for a tile (rows, sums, vectors)."""
    rows, sums, vectors = tile.tolist()
    size = f"{rows}:{sums}:{vectors}*vectwidth"
    return Flags(LIBRARIES_OFF, ((FORCE, "true"), (SIZE, size)))


def _find_dot(program: Program) -> tuple[Any, tuple[int, int, int]]:
    """Return the program's dot, and its sizes: rows, summed elements, columns. Raises InputError if
    there is not exactly one dot, or it is no plain product of floats."""
    dots = [i for i in instructions(program.module) if i.opcode == "dot"]
    shapes = {i.id: i.shape for i in instructions(program.module)}
    if len(dots) == 1 and dots[0].shape.element_type in FLOAT_BYTES:
        left, right = (list(shapes[operand].dimensions) for operand in dots[0].operand_ids)
        numbers, batch = dots[0].dot, list(range(len(left) - 2))
        is_plain = (
            len(left) == len(right) >= 2
            and list(numbers.lhs_batch_dimensions) == batch == list(numbers.rhs_batch_dimensions)
            and list(numbers.lhs_contracting_dimensions) == [len(left) - 1]
            and list(numbers.rhs_contracting_dimensions) == [len(left) - 2]
        )
        if is_plain:
            return dots[0], (left[-2], left[-1], right[-1])
    raise InputError(
        f"{program.name}: expected a single matrix product (x @ weights, perhaps with batch "
        f"dimensions in front) of float32 or float64, found {len(dots)} products. Write such a "
        "program."
    )
