"""Describe how layout assignment differs between the backends of XLA."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """The rules by which an XLA backend (CPU or TPU) requests layouts.

    The CPU backend requests row-major operands of every instruction and row-major results of dots
    and convolutions (`CpuLayoutAssignment::AddBackendConstraints` of openxla/xla). A configuration
    requests its layouts by custom calls (on a CPU, see solution.collecting.constraints; on a TPU,
    solution.collecting.tpu.asking).
    """

    # the backend requests row-major operands of every instruction, and row-major results, in a
    # canonical dimension order, of dots and convolutions
    row_major: bool
    # before layouts are assigned, operands of dots and convolutions are transposed or swapped, and
    # dots become matrix products
    canonical_operands: bool
    # a library computes reductions and the instructions fused with them
    by_library: bool
    # tensors are padded to tiles, and the backend chooses layouts by padded size; see tiles.py
    device_layouts: bool


CPU = Backend(row_major=True, canonical_operands=True, by_library=True, device_layouts=False)
TPU = Backend(row_major=False, canonical_operands=False, by_library=False, device_layouts=True)
BACKENDS = {"cpu": CPU, "tpu": TPU}
