"""Tiles of XLA's own matrix products on a CPU: the loops that it writes itself, not a library's.

Since a size can be set for each compilation, these are the true tiles of a true compiler, three to
six times apart. Not all of them are right: one wider than what is left at a ragged edge gives
wrong numbers, and very large ones take all memory. So each is compared with the default program.
"""

import platform
from itertools import product
from typing import Any

import numpy as np

from solution.collecting.compiler import Flags
from solution.collecting.program import Program
from solution.data.hlo.messages import instructions
from solution.system.errors import InputError

# XLA's own loops are only used where no library takes the product.
LIBRARIES_OFF = (
    ("xla_cpu_multi_thread_eigen", False),
    ("xla_cpu_experimental_ynn_fusion_type", ""),
    ("xla_cpu_use_xnnpack", False),
    ("xla_cpu_use_onednn", False),
)
FORCE, SIZE = "xla_force_enable_experimental_llvm_ir_gemm", "xla_llvm_ir_gemm_tile_size"
ROWS = (1, 2, 3, 4, 6, 8, 11, 16, 24, 32)
SUMS = (1, 2, 4, 8, 9, 16, 32)
VECTORS = (1, 2, 3, 4)
DEFAULT = (11, 9, 1)  # what XLA takes where no size is given
MAX_UNROLLED = 1024  # rows times sums times vectors: the code of larger ones takes minutes
VECTOR_BYTES = {"x86_64": 32, "AMD64": 32}  # xla_cpu_prefer_vector_width is 256; elsewhere half
FLOAT_BYTES = {11: 4, 12: 8}  # by the numbers of XLA's PrimitiveType


class TileSpace:
    """The tile of a program's one matrix product: values (3,) are rows, sums and vectors."""

    reference_counts = False  # it runs a library's product, which has no tile

    def __init__(self, program: Program) -> None:
        self._program = program
        self._dot, sizes = _find_product(program)
        self._width = _vector_elements(self._dot)
        rows, sums, columns = sizes
        grid = [
            (row, inner, vectors)
            for row, inner, vectors in product(ROWS, SUMS, VECTORS)
            if row <= rows and inner <= sums and vectors * self._width <= max(columns, self._width)
            if row * inner * vectors <= MAX_UNROLLED
        ]
        self.grid = np.array(sorted({*grid, DEFAULT}), np.int16)
        self.default = np.array(DEFAULT, np.int16)

    def draw(
        self, generator: np.random.Generator, count: int, parents: list[np.ndarray]
    ) -> list[np.ndarray]:
        """All tiles that are no larger than the product, in a random order."""
        return list(self.grid[generator.permutation(len(self.grid))])

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """The program as it is, and the tile as an option."""
        rows, sums, vectors = values.tolist()
        size = f"{rows}:{sums}:{vectors}*vectwidth"
        return self._program.plain, Flags(LIBRARIES_OFF, ((FORCE, "true"), (SIZE, size)))

    def write(self, values: np.ndarray, run: Any) -> None:
        """In elements: the tile of the output, and in the input the tile of what is summed up."""
        rows, sums, vectors = values.tolist()
        batch = len(self._dot.shape.dimensions) - 2
        run.tile.sizes.output_bounds[:] = [*[1] * batch, rows, vectors * self._width]
        run.tile.sizes.input_bounds[:] = [sums]


def _find_product(program: Program) -> tuple[Any, tuple[int, int, int]]:
    """The only dot, and its rows, sums and columns."""
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
        f"{program.name}: expected one matrix product of float32 or float64 whose left factor ends "
        f"with, and whose right one begins with what is summed up, found {len(dots)} products. "
        "Write such a program: x @ weights, perhaps with a batch dimension in front."
    )


def _vector_elements(dot: Any) -> int:
    size = VECTOR_BYTES.get(platform.machine(), 16)
    return size // FLOAT_BYTES[dot.shape.element_type]
