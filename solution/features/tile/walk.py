"""Describe how the loops of a kernel move along one tensor, and which part they touch."""

from dataclasses import dataclass

import numpy as np

from solution.features.tile.tiling import NUM_LOOPS


@dataclass(frozen=True)
class Axis:
    """The loops that move along one dimension of a tensor; without a loop it is read whole."""

    loop: int | None = None
    window: int | None = None  # the loop over a convolution's weights
    step: float = 1.0  # elements that one iteration of `loop` moves
    halo: float = 0.0  # neighbouring elements that an iteration reads as well


Axes = tuple[Axis, ...]


@dataclass(frozen=True)
class Walk:
    """How the loops move along one tensor; dimensions from major to minor."""

    node: int
    sizes: np.ndarray  # (rank,) float64
    strides: np.ndarray  # (rank,) float64: bytes between neighbours
    axes: Axes
    element_bytes: float

    def box(self, iterations: np.ndarray) -> np.ndarray:
        """Return how many elements `iterations` (configs, NUM_LOOPS) touch along each dimension.

        Returns:
            (configs, rank)
        """
        columns = [
            _reach(axis, size, iterations) for axis, size in zip(self.axes, self.sizes, strict=True)
        ]
        return np.stack(columns, axis=1) if columns else np.ones((len(iterations), 0))

    def follows(self) -> np.ndarray:
        """The loops that move along the tensor: (NUM_LOOPS,) bool."""
        found = np.zeros(NUM_LOOPS, bool)
        for axis in self.axes:
            for loop in (axis.loop, axis.window):
                if loop is not None:
                    found[loop] = True
        return found

    def inner_stride(self, loop: int) -> float:
        """Return the bytes between two iterations of the loop; 0 if it does not move."""
        moved = [
            stride * axis.step
            for axis, stride in zip(self.axes, self.strides, strict=True)
            if axis.loop == loop
        ]
        return float(min(moved)) if moved else 0.0


def _reach(axis: Axis, size: float, iterations: np.ndarray) -> np.ndarray:
    once = np.ones(len(iterations))
    if axis.loop is None and axis.window is None:
        return once * size
    steps = once if axis.loop is None else iterations[:, axis.loop]
    window = once if axis.window is None else iterations[:, axis.window]
    return np.minimum((steps - 1) * axis.step + window + axis.halo, size)
