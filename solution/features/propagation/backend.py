"""Describe how layout assignment differs between the backends of XLA."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    """How one backend requests layouts.

    Source: `CpuLayoutAssignment::AddBackendConstraints` of openxla/xla: row-major operands of every
    instruction and results of products. A configuration enters as custom calls on a CPU
    (solution.collecting.constraints), in TpuGraphs as constraints on instructions.
    """

    row_major_operands: bool  # every operand is requested in row-major order
    # dots and convolutions write row-major tensors in canonical dimension order
    row_major_products: bool
    by_custom_calls: bool  # each request of a configuration is a separate custom call
    # operands of dots are reshaped to matrices, swapped or transposed first
    canonical_operands: bool
    by_library: bool  # a library computes reductions and the instructions fused with them
    # tensors are padded to tiles, and layouts chosen by padded size; see tiles and register_tiles
    device_layouts: bool

    @property
    def flags(self) -> tuple[bool, ...]:
        """The differences that compiled code asks for, in the order of `Instructions.flags`."""
        return (
            self.row_major_operands, self.row_major_products, self.by_custom_calls,
            self.device_layouts,
        )  # fmt: skip


CPU = Backend(True, True, True, True, True, device_layouts=False)
TPU = Backend(False, False, True, False, False, device_layouts=True)
BACKENDS = {"cpu": CPU, "tpu": TPU}
