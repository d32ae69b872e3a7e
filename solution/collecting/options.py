"""Compile options that change a program's speed on a CPU; by how much depends on the program.

They were chosen by trying some 30 on five programs, on a busy machine: these moved some program by
at least 8%, while two identical builds were up to 6% apart. Left out, as within noise or not the
same in both trials: fast math, vector width, XNNPACK, oneDNN, the scheduler, region analysis,
expensive passes, the optimization level, loop unrolling, vectorizing straight code.
`python -m tests.benchmarks.collecting options` times each choice that is here alone.
"""

from itertools import product
from typing import Any

import numpy as np

from solution.collecting.compiler import Flags
from solution.collecting.program import Program
from solution.domain.vocabulary import OPTION_CHOICES, OPTION_NAMES

KIND = "LIBRARY_FUSION_TYPE_"
LIBRARY = "xla_cpu_experimental_ynn_fusion_type"
# What a choice tells the compiler, by option and choice; the default tells nothing.
BY_NAME: dict[tuple[str, str], tuple[tuple[str, bool | int | str], ...]] = {
    ("library_fusions", "none"): ((LIBRARY, ""),),
    ("library_fusions", "dot"): ((LIBRARY, f"{KIND}DOT"),),
    ("library_fusions", "dot_alone"): ((LIBRARY, f"{KIND}INDIVIDUAL_DOT"),),
    ("library_fusions", "elementwise"): ((LIBRARY, f"{KIND}ELTWISE"),),
    ("library_fusions", "reduce"): ((LIBRARY, f"{KIND}REDUCE"),),
    ("library_fusions", "dot_and_reduce"): ((LIBRARY, f"{KIND}DOT,{KIND}REDUCE"),),
    ("products", "own_loops"): (("xla_cpu_multi_thread_eigen", False),),
    ("min_max", "fast"): (("xla_cpu_enable_fast_min_max", True),),
    ("tiling_propagation", "on"): (("xla_cpu_experimental_enable_tiling_propagation", True),),
}
BY_BACKEND: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("products", "own_loops"): (("xla_force_enable_experimental_llvm_ir_gemm", "true"),),
    ("size", "small"): (("xla_cpu_optimize_for_size", "true"),),
}


class OptionSpace:
    """Choices of the options: values (options,), positions in OPTION_CHOICES."""

    reference_counts = True

    def __init__(self, program: Program) -> None:
        self._program = program
        counts = [range(len(choices)) for choices in OPTION_CHOICES.values()]
        self._grid = np.array(list(product(*counts)), np.int8)
        self.default = np.zeros(len(OPTION_NAMES), np.int8)

    def draw(
        self, generator: np.random.Generator, count: int, parents: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Random choices of all options."""
        return list(self._grid[generator.permutation(len(self._grid))])

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """The program as it is, and what the compiler is told."""
        return self._program.plain, find_flags(values)

    def write(self, values: np.ndarray, run: Any) -> None:
        """No layouts, and the choices."""
        run.layout.layouts.SetInParent()
        for _ in self._program.configurable:
            run.layout.layouts.nodes.add()
        run.options.choices[:] = values.tolist()


def find_flags(values: np.ndarray) -> Flags:
    """What the compiler is told for choices (options,)."""
    chosen = [
        (name, OPTION_CHOICES[name][value])
        for name, value in zip(OPTION_NAMES, values.tolist(), strict=True)
    ]
    named = [flag for choice in chosen for flag in BY_NAME.get(choice, ())]
    return Flags(
        tuple(named), tuple(flag for choice in chosen for flag in BY_BACKEND.get(choice, ()))
    )
