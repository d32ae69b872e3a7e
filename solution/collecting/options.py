"""Compile options that change a program's speed on a CPU; the effect depends on the program.

The first five were chosen by trying about 30 on five programs on a busy machine. The others were
chosen on ten programs with a quiet clock, each with the compiler's defaults and with the best
values of the first five: wide vectors gained up to 20%, no loop unrolling and less effort up to
30%. These options were left out, because they gained no more than compiling the same program again
does: fast math, XNNPACK, oneDNN, the scheduler, region analysis, expensive passes, inlining, fewer
modules, vectorizing straight code (solution/experiments/LOG.md, 2026-11-24: options that matter).
"""

import numpy as np

from solution.domain.vocabulary import OPTION_CHOICES, OPTION_NAMES
from solution.programs.compiler import Flags

KIND = "LIBRARY_FUSION_TYPE_"
LIBRARY = "xla_cpu_experimental_ynn_fusion_type"
# {(option, value): flags with which the compiler uses the value}; default values need no flag.
BY_NAME: dict[tuple[str, str], tuple[tuple[str, bool | int | str], ...]] = {
    ("library_fusions", "none"): ((LIBRARY, ""),),
    ("library_fusions", "dot"): ((LIBRARY, f"{KIND}DOT"),),
    ("library_fusions", "dot_alone"): ((LIBRARY, f"{KIND}INDIVIDUAL_DOT"),),
    ("library_fusions", "elementwise"): ((LIBRARY, f"{KIND}ELTWISE"),),
    ("library_fusions", "reduce"): ((LIBRARY, f"{KIND}REDUCE"),),
    ("library_fusions", "dot_and_reduce"): ((LIBRARY, f"{KIND}DOT,{KIND}REDUCE"),),
    ("library_fusions", "convolution"): ((LIBRARY, f"{KIND}INDIVIDUAL_CONVOLUTION"),),
    ("products", "own_loops"): (("xla_cpu_multi_thread_eigen", False),),
    ("min_max", "fast"): (("xla_cpu_enable_fast_min_max", True),),
    ("tiling_propagation", "on"): (("xla_cpu_experimental_enable_tiling_propagation", True),),
    ("vector_width", "wide"): (("xla_cpu_prefer_vector_width", 512),),
    ("effort", "less"): (("xla_backend_optimization_level", 1),),
}
# {(option, value): flags that are set in XLA's map of backend options, see Flags.backend}
BY_BACKEND: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("products", "own_loops"): (("xla_force_enable_experimental_llvm_ir_gemm", "true"),),
    ("size", "small"): (("xla_cpu_optimize_for_size", "true"),),
    ("unrolling", "off"): (("xla_cpu_disable_loop_unrolling", "true"),),
}
# The order in which a search tries the options: the most useful ones first.
IN_TURN = ("vector_width", "unrolling", "effort", "library_fusions", "products",
           "tiling_propagation", "min_max", "size")  # fmt: skip
# {value of an option: values of other options to set with it}
NEEDS = {("products", "own_loops"): (("library_fusions", "none"), ("vector_width", "wide"))}


def find_flags(options: np.ndarray) -> Flags:
    """Return the compiler's flags for options (options,): indices of values in OPTION_CHOICES."""
    chosen = [
        (name, OPTION_CHOICES[name][value])
        for name, value in zip(OPTION_NAMES, options.tolist(), strict=True)
    ]
    return Flags(
        tuple(flag for choice in chosen for flag in BY_NAME.get(choice, ())),
        tuple(flag for choice in chosen for flag in BY_BACKEND.get(choice, ())),
    )


def list_settings() -> list[list[tuple[int, int]]]:
    """Return the settings that a search tries, the most useful first. A setting is a list of pairs
    (option, value): a value that differs from the default, and other options' values that it needs.
    """
    settings = [
        ((name, choice), *NEEDS.get((name, choice), ()))
        for name in IN_TURN
        for choice in OPTION_CHOICES[name][1:]
    ]
    return [
        [(OPTION_NAMES.index(name), OPTION_CHOICES[name].index(choice)) for name, choice in setting]
        for setting in settings
    ]
