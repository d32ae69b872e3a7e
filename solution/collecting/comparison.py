"""Check that a configuration computes the same results as the default program.

Layouts and tiles change the order of sums and so the last digits. A number may therefore differ by
a tolerance times (its absolute value + the tensor's root mean square). The tolerance depends on the
precision of the type.

Operations such as a remainder, a rounding or a comparison are discontinuous: a change of an
operand's last digit may change their result by any amount. Numbers that change by more than the
tolerance when the arguments change a little are not compared, see `find_doubtful`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from solution.programs.arguments import TYPE_NAMES
from solution.programs.hlo.messages import instructions

RULES = 2  # version of this comparison; a collection made with another version is not resumed
TOLERANCE = 1e-3  # minimum relative tolerance, unless `sharpen` tightens it
# minimum tolerance, in roundings; a rounding is a type's epsilon, the distance of 1 from the next
# number
ROUNDINGS = 16
# types with a larger rounding (8-bit floats) have a tolerance of one rounding, because only the
# final result is converted to such a type
COARSE = 2.0**-6
# tightened tolerance = NOISE x change of the results if each argument changes by <= 1 rounding
NOISE = 64
EXACT = "biu"  # dtype.kind of types whose numbers must be equal: booleans and integers
JUMPING = frozenset(  # opcodes whose result may jump if the last digit of an operand changes
    ("remainder", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "sign", "compare",
     "is-finite", "sort", "bitcast-convert", "convert")
)  # fmt: skip
NUDGES = 16  # maximum number of runs with slightly changed arguments, see `find_doubtful`
NUDGE_STEPS = 4  # each number in the arguments changes by at most this many roundings
FINE = 2.0**-20  # only arguments of types with smaller roundings, such as float32, are changed
NUDGE_SECONDS = 5.0  # after this time, no further run with changed arguments begins


def find_deviation(
    found: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    tolerances: Sequence[float] | None = None,
    doubtful: Sequence[np.ndarray] = (),
) -> str:
    """Return in words how the results `found` differ from `expected`; "" if they agree. NaN and
    infinite numbers must be equal. `tolerances`: the relative tolerance of each result (None: by
    type). `doubtful`: for each result, a mask of numbers not to compare."""
    allowed = find_tolerances(expected) if tolerances is None else tolerances
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for number, pair in enumerate(zip(found, expected, strict=True)):
        defect = _compare(*pair, allowed[number], doubtful[number] if doubtful else None)
        if defect:
            return f"result {number}: {defect}"
    return ""


def can_tell_apart(
    wrong: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    tolerances: Sequence[float] | None = None,
    doubtful: Sequence[np.ndarray] = (),
) -> bool:
    """Return True if `wrong` differs from `expected` beyond the tolerances, in a number that is
    finite in `expected` and not masked by `doubtful`."""
    allowed = find_tolerances(expected) if tolerances is None else tolerances
    left_out = doubtful or [np.zeros(other.shape, bool) for other in expected]
    return any(
        bool((_find_wrong(spoiled, right, tolerance) & np.isfinite(_widen(right)) & ~mask).any())
        for spoiled, right, tolerance, mask in zip(wrong, expected, allowed, left_out, strict=True)
    )


def can_jump(module: Any) -> bool:
    """Return True if a tiny change of floats may change a Module's results by any amount, because
    an instruction in JUMPING reads floats. A conversion from float to float does not count."""
    floats = {
        node.id
        for node in instructions(module)
        if 0 <= node.shape.element_type < len(TYPE_NAMES)
        and TYPE_NAMES[node.shape.element_type].startswith(("f", "bf", "c"))
    }
    return any(
        node.opcode in JUMPING
        and not floats.isdisjoint(node.operand_ids)
        and not (node.opcode == "convert" and node.id in floats)
        for node in instructions(module)
    )


def find_doubtful(
    run: Callable[[list[np.ndarray]], Sequence[np.ndarray]],
    arguments: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Return a mask for each result: True for numbers that cannot be compared. They change by more
    than the tolerance if the arguments change a little, so a correct program with another order of
    sums may change them as much. `run` runs the program; `expected`: results for `arguments`."""
    masks = [np.zeros(other.shape, bool) for other in expected]
    allowed = find_tolerances(expected)
    deadline = time.monotonic() + NUDGE_SECONDS
    for seed in range(NUDGES):
        if time.monotonic() > deadline:
            break
        found = run(_nudge(arguments, seed))
        for mask, own, other, tolerance in zip(masks, found, expected, allowed, strict=True):
            mask |= _find_wrong(own, other, tolerance)
    return masks


def _nudge(arguments: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Return the arguments, randomly changed by at most NUDGE_STEPS roundings. Whole numbers, and
    arrays of types with a rounding of FINE or more, are not changed."""
    generator = np.random.default_rng(seed)
    return [
        array
        if not 0 < _find_rounding(array.dtype) < FINE
        else np.where(array == np.rint(array), array, _shake(array, generator, NUDGE_STEPS))
        for array in arguments
    ]


def find_tolerances(results: Sequence[np.ndarray]) -> list[float]:
    """Return the relative tolerance of each result, by its type."""
    return [find_tolerance(result.dtype) for result in results]


def sharpen(shaken: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> list[float]:
    """Return a tighter relative tolerance for each result, for programs in which errors change the
    results little: NOISE x the distance of `shaken` (results for arguments that `shake` changed)
    from `expected`, but at least ROUNDINGS roundings and at most the type's tolerance."""
    return [_sharpen(*pair) for pair in zip(shaken, expected, strict=True)]


def _sharpen(shaken: np.ndarray, expected: np.ndarray) -> float:
    tolerance = find_tolerance(expected.dtype)
    if not tolerance:  # numbers must be equal; booleans cannot be subtracted
        return 0.0
    noise = NOISE * _find_distance(shaken, expected)
    return min(tolerance, max(ROUNDINGS * _find_rounding(expected.dtype), noise))


def shake(arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arguments; each float is raised or lowered by one rounding, or kept, at random."""
    generator = np.random.default_rng(0)
    return [_shake(array, generator) for array in arguments]


def _shake(array: np.ndarray, generator: np.random.Generator, most: int = 1) -> np.ndarray:
    rounding = _find_rounding(array.dtype)
    if not rounding:
        return array
    steps = generator.integers(-most, most + 1, array.shape)
    return np.asarray((_widen(array) * (1 + rounding * steps)).astype(array.dtype))


def _find_distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the smallest tolerance with which all finite numbers of two arrays agree: the maximum
    of |found - expected| / (|expected| + root mean square of `expected`)."""
    found, expected = _widen(found), _widen(expected)
    finite = np.isfinite(found) & np.isfinite(expected)
    size = np.abs(expected[finite])
    scale = size + _find_typical(size)
    distance = np.abs(found[finite] - expected[finite])
    return float(np.max(distance / np.where(scale > 0, scale, 1.0), initial=0.0))


def describe_blindness(results: Sequence[np.ndarray]) -> str:
    """Return in words why a comparison with these results would miss errors, for example because
    all are 0; "" if no such reason is known."""
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


def _compare(
    found: np.ndarray, expected: np.ndarray, tolerance: float, doubtful: np.ndarray | None
) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}"
    wrong = _find_wrong(found, expected, tolerance)
    if doubtful is not None:
        wrong &= ~doubtful
    count = int(np.count_nonzero(wrong))
    return f"{count:,} of {wrong.size:,} numbers are wrong" if count else ""


def _find_wrong(found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Return a mask: True where `found` differs from `expected` beyond the tolerance."""
    found, expected = _widen(found), _widen(expected)
    return ~_close(found, expected, tolerance) if tolerance else np.asarray(found != expected)


def _close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Return a mask: |found - expected| <= tolerance * (|expected| + root mean square of its finite
    numbers); NaN and infinite numbers must be equal."""
    size = np.abs(expected)
    finite = np.isfinite(size)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(found - expected) <= tolerance * (size + _find_typical(size[finite]))
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(finite, near, same)


def _find_typical(sizes: np.ndarray) -> float:
    """Return the root mean square of absolute values; avoid overflow of their squares."""
    largest = float(sizes.max(initial=0.0))
    return largest * float(np.sqrt(np.mean((sizes / largest) ** 2))) if largest else 0.0


def find_tolerance(dtype: np.dtype) -> float:
    """Return the relative tolerance of a type; 0 if numbers must be equal."""
    rounding = _find_rounding(dtype)
    if not rounding:
        return 0.0
    return rounding if rounding > COARSE else max(TOLERANCE, ROUNDINGS * rounding)


def _find_rounding(dtype: np.dtype) -> float:
    """Return the distance from 1 to the next number of a type; 0 for integers and booleans."""
    if dtype.kind in EXACT:
        return 0.0
    import ml_dtypes  # comes with jax; numpy does not know bfloat16 and narrower types

    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:  # finfo rejects int4 and similar types, which hold integers
        return 0.0


def _widen(array: np.ndarray) -> np.ndarray:
    """Convert the numbers to a numpy type that can hold every number of their type."""
    if array.dtype.kind in EXACT:
        return array
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)
