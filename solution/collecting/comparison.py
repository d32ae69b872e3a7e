"""Whether a configuration computes what the default program computes.

Layouts and tiles change the order of sums and so the last digits. A number may therefore differ by
a share of its own size plus the same share of the tensor's root mean square. The share depends on
how finely the type can tell numbers apart.
"""

from collections.abc import Sequence

import numpy as np

RULES = 2  # their number: what was compared by others is not gone on with
TOLERANCE = 1e-3  # the least share
ROUNDINGS = 16  # of the type, where that is more: errors of many sums add up
COARSE = 2.0**-6  # where roundings are larger, results are rounded once, at the end: one may differ
NOISE = 64  # times as much as a rounding of the arguments changes
EXACT = "biu"  # numpy's kinds of types that must agree in each number


def find_deviation(
    found: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    tolerances: Sequence[float] | None = None,
) -> str:
    """Return what is wrong with the results; empty where they agree.

    A result that is no finite number must be the same in both (NaN, infinity and its sign).

    Args:
        tolerances: of each result, the share by which numbers may differ; by default its type's.
    """
    allowed = find_tolerances(expected) if tolerances is None else tolerances
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for place, (own, other) in enumerate(zip(found, expected, strict=True)):
        defect = _compare(own, other, allowed[place])
        if defect:
            return f"result {place}: {defect}"
    return ""


def can_tell_apart(
    wrong: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    tolerances: Sequence[float] | None = None,
) -> bool:
    """Return whether results that are wrong on purpose differ where the expected are finite.

    What is NaN or infinite anyway could hide anything, so it does not count.
    """
    allowed = find_tolerances(expected) if tolerances is None else tolerances
    return any(
        bool((_find_wrong(own, other, tolerance) & _find_finite(other)).any())
        for own, other, tolerance in zip(wrong, expected, allowed, strict=True)
    )


def find_tolerances(results: Sequence[np.ndarray]) -> list[float]:
    """Return the share by which numbers of each result may differ, as its type says."""
    return [find_tolerance(result.dtype) for result in results]


def sharpen(shaken: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> list[float]:
    """Return smaller shares, for results that change little where something is computed wrongly.

    Args:
        shaken: the results for arguments of which each number was rounded once more (see `shake`):
            how much they differ from the expected ones is how much rounding may matter.
    """
    return [
        min(
            find_tolerance(other.dtype),
            max(ROUNDINGS * _find_rounding(other.dtype), NOISE * _find_distance(own, other)),
        )
        for own, other in zip(shaken, expected, strict=True)
    ]


def shake(arguments: Sequence[np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """Return the arguments with each number of a float type a rounding up, down, or as it is."""
    generator = np.random.default_rng(seed)
    return [_shake(array, generator) for array in arguments]


def _shake(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    rounding = _find_rounding(array.dtype)
    if not rounding:
        return array
    steps = generator.integers(-1, 2, array.shape)
    return np.asarray((_widen(array) * (1 + rounding * steps)).astype(array.dtype))


def _find_distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest share by which finite numbers differ."""
    own, other = _widen(found), _widen(expected)
    finite = np.isfinite(own) & np.isfinite(other)
    size = np.abs(other[finite])
    scale = size + _find_typical(size)
    distance = np.abs(own[finite] - other[finite])
    return float(np.max(distance / np.where(scale > 0, scale, 1.0), initial=0.0))


def describe_blindness(results: Sequence[np.ndarray]) -> str:
    """Return what makes results compare little, in words; empty where nothing obvious does."""
    if not sum(result.size for result in results):
        return "it has no results"
    numbers = [_widen(result.ravel()) for result in results if result.size]
    finite = np.concatenate([np.isfinite(part) for part in numbers])
    if not finite.any():
        return "all results are NaN or infinite"
    if all((part[np.isfinite(part)] == 0).all() for part in numbers):
        return "all results are 0"
    if all((part == part[0]).all() for part in numbers):
        return "all results are constant"
    lost = int(np.count_nonzero(~finite))
    return f"{lost:,} of {finite.size:,} results are NaN or infinite" if lost else ""


def _compare(found: np.ndarray, expected: np.ndarray, tolerance: float) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}"
    wrong = _find_wrong(found, expected, tolerance)
    count = int(np.count_nonzero(wrong))
    return f"{count:,} of {wrong.size:,} numbers are wrong" if count else ""


def _find_wrong(found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Return where (the results' shape, bool) two arrays of one shape and type do not agree."""
    if not tolerance:
        own, other = (_widen(array) for array in (found, expected))
        return np.asarray(own != other)
    return ~_close(_widen(found), _widen(expected), tolerance)


def _close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """|found - expected| <= tolerance * (|expected| + the root mean square of what is finite)."""
    size = np.abs(expected)
    finite = np.isfinite(size)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(found - expected) <= tolerance * (size + _find_typical(size[finite]))
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(finite, near, same)


def _find_typical(sizes: np.ndarray) -> float:
    """Return the root mean square; scaled, because squares of large numbers are infinite."""
    largest = float(sizes.max(initial=0.0))
    return largest * float(np.sqrt(np.mean((sizes / largest) ** 2))) if largest else 0.0


def find_tolerance(dtype: np.dtype) -> float:
    """Return the share by which a number of the type may differ; 0 for types that are exact."""
    rounding = _find_rounding(dtype)
    if not rounding:
        return 0.0
    return rounding if rounding > COARSE else max(TOLERANCE, ROUNDINGS * rounding)


def _find_rounding(dtype: np.dtype) -> float:
    """Return the distance from 1 to the next number; 0 for whole numbers and truth values."""
    if dtype.kind in EXACT:
        return 0.0
    import ml_dtypes  # comes with jax; numpy does not know bfloat16 and narrower types

    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:  # int4 and such
        return 0.0


def _find_finite(array: np.ndarray) -> np.ndarray:
    return np.asarray(np.isfinite(_widen(array)))


def _widen(array: np.ndarray) -> np.ndarray:
    """Return the numbers in a type of numpy's that holds all of them."""
    if array.dtype.kind in EXACT:
        return array
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)
