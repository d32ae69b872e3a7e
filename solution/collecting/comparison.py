"""Whether a configuration computes what the default program computes."""

from collections.abc import Sequence

import numpy as np

TOLERANCE = 1e-3  # of the number itself, and of the typical size of the tensor's numbers
ROUNDINGS = 16  # of the type, where it is coarser than that
EXACT = "biu"  # kinds of types that must agree in each number


def find_deviation(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """What is wrong with the results; empty where they agree.

    Layouts and tiles change the order of sums and so the last digits: numbers may differ by a
    thousandth of their own size and of the tensor's root mean square.
    """
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for place, (own, other) in enumerate(zip(found, expected, strict=True)):
        defect = _compare(own, other)
        if defect:
            return f"result {place}: {defect}"
    return ""


def _compare(found: np.ndarray, expected: np.ndarray) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}"
    wrong = found != expected if expected.dtype.kind in EXACT else ~_close(found, expected)
    count = int(np.count_nonzero(wrong))
    return f"{count:,} of {wrong.size:,} numbers are wrong" if count else ""


def _close(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    tolerance = max(TOLERANCE, ROUNDINGS * _rounding(expected.dtype))
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    own, other = found.astype(kind), expected.astype(kind)
    size = np.abs(other)
    finite = np.isfinite(size)
    typical = float(np.sqrt(np.mean(size[finite] ** 2))) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        near = np.abs(own - other) <= tolerance * (size + typical)
    same = (own == other) | (np.isnan(own) & np.isnan(other))
    return np.where(finite, near, same)


def _rounding(dtype: np.dtype) -> float:
    """The distance from 1 to the next number; bfloat16 and such are not numpy's own."""
    sizes = {1: 2.0**-2, 2: 2.0**-7}  # of the coarsest type with so many bytes
    if dtype.kind == "V" or dtype.itemsize in sizes:
        return sizes.get(dtype.itemsize, 0.0)
    return float(np.finfo(dtype).eps)
