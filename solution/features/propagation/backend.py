"""What backends do differently where layouts are assigned."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """How one compiler asks for layouts.

    Source: CpuLayoutAssignment::AddBackendConstraints of openxla/xla asks for row-major operands of
    every instruction and for row-major results of products; the configurations of cpugraphs go in
    by custom calls (solution.collecting.constraints), those of TpuGraphs by constraints on the
    instructions themselves. What stands around products: solution.features.propagation.canonical.
    """

    row_major_operands: bool  # every operand is asked for in row-major order
    row_major_products: bool  # dots and convolutions write row-major tensors, in canonical order
    by_custom_calls: bool  # what a configuration asks for stands in an instruction of its own
    canonical_operands: bool  # products are made matrices of, turned, and transposed for
    by_library: bool  # it gives reductions, and what joins them, to a library


CPU = Backend(
    row_major_operands=True,
    row_major_products=True,
    by_custom_calls=True,
    canonical_operands=True,
    by_library=True,
)
TPU = Backend(
    row_major_operands=False,
    row_major_products=False,
    by_custom_calls=False,
    canonical_operands=False,
    by_library=False,
)
BACKENDS = {"cpu": CPU, "tpu": TPU}
