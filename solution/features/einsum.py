"""Infer which dimensions of a dot's operands and output correspond, as einsum letters.

The npz files do not say which dimensions a dot contracts. If all sizes differ, they follow from the
sizes: the output has the batch dimensions, then the left operand's free dimensions, then the right
operand's free dimensions, each in order. Any other dimension of an operand is contracted.
"""

import math
from functools import lru_cache
from itertools import combinations, permutations
from typing import NamedTuple

Dimensions = tuple[int, ...]


class Einsum(NamedTuple):
    """A letter (an integer) for each dimension of a dot's operands and output. Dimensions whose
    letters are not in the output are contracted."""

    left: Dimensions
    right: Dimensions
    output: Dimensions

    @property
    def batch(self) -> Dimensions:
        """The letters that both operands and the output have, in the output's order."""
        return tuple(one for one in self.output if one in self.left and one in self.right)

    @property
    def summed(self) -> tuple[Dimensions, Dimensions]:
        """The contracted dimensions of the left operand, and of the right operand."""
        left, right = (
            tuple(axis for axis, letter in enumerate(letters) if letter not in self.output)
            for letters in (self.left, self.right)
        )
        return left, right

    @property
    def is_usual(self) -> bool:
        """True if the dot contracts the last dimensions of the left operand and the first ones of
        the right operand, not counting batch dimensions."""
        left, right = self.summed
        batch = len(self.batch)
        ends, begins = len(self.left) - len(left), batch + len(right)
        return left == (*range(ends, len(self.left)),) and right == (*range(batch, begins),)


@lru_cache(maxsize=1 << 14)
def label_dot(
    left: Dimensions,
    right: Dimensions,
    output: Dimensions,
    *,
    is_alike: bool = False,
    summed: tuple[Dimensions, Dimensions] | None = None,
) -> Einsum | None:
    """Return the letters of a dot with operands and output of these sizes; None if no letters fit.
    Of several labellings, prefer the fewest batch dimensions, then batch dimensions that come
    first, then contracted dimensions that are last in the left and first in the right operand.

    `is_alike`: prefer the same contracted dimensions in both operands, as for queries and keys.
    `summed`: the contracted dimensions of both operands, if a module states them.
    """
    for batch in range(min(len(left), len(right), len(output)) + 1):
        count, odd = divmod(len(left) + len(right) - len(output) - batch, 2)
        if odd or count < 0 or batch + count > min(len(left), len(right)):
            continue
        first_right = len(left) - count
        of_left = _label(left, output, [*range(first_right)], batch)
        of_right = _label(right, output, [*range(batch), *range(first_right, len(output))], batch)
        ways = [
            Einsum(one, other, tuple(range(len(output))))
            for one in reversed(of_left)
            for other in of_right
            if _sizes(one, left, output) == _sizes(other, right, output)
        ]
        if summed is not None:
            ways = [way for way in ways if way.summed == summed]
        shared = tuple(range(batch))
        ways.sort(key=lambda way: (way.left[:batch] != shared) + (way.right[:batch] != shared))
        alike = [way for way in ways if is_alike and way.summed[0] == way.summed[1]]
        if ways:
            return (alike or ways)[0]
    return None


def _label(shape: Dimensions, output: Dimensions, kept: list[int], batch: int) -> list[Dimensions]:
    """List ways to label an operand's dimensions with the letters `kept`. The first `batch` letters
    may label any dimensions; the others are in order. The remaining dimensions are contracted; they
    get the letters after the output's, by ascending size."""
    found = []
    for summed in combinations(range(len(shape)), len(shape) - len(kept)):
        rest = [axis for axis in range(len(shape)) if axis not in summed]
        for first in permutations(rest, batch):
            axes = [*first, *(axis for axis in rest if axis not in first)]
            if [shape[axis] for axis in axes] == [output[letter] for letter in kept]:
                letters = dict(zip(axes, kept, strict=True))
                by_size = sorted(summed, key=shape.__getitem__)
                letters |= {axis: len(output) + k for k, axis in enumerate(by_size)}
                found.append(tuple(letters[axis] for axis in range(len(shape))))
                break
    return found


def _sizes(letters: Dimensions, shape: Dimensions, output: Dimensions) -> list[int]:
    """Return the sizes of an operand's contracted dimensions in ascending order."""
    return sorted(
        size for letter, size in zip(letters, shape, strict=True) if letter >= len(output)
    )


@lru_cache(maxsize=1 << 14)
def count_terms(left: Dimensions, right: Dimensions, output: Dimensions) -> int | None:
    """Return the number of terms (multiplications) that a dot sums for each element of its output,
    with as few batch dimensions as the sizes allow; None if the sizes do not fit a dot. The
    operands' dimensions may be in any order."""
    for batch in range(len(output) + 1):
        # position in the output of the first free dimension of `right`, given `batch` and the ranks
        first_right, odd = divmod(len(left) - len(right) + len(output) + batch, 2)
        if odd or not batch <= first_right <= len(output):
            continue
        summed = _take(left, output[:first_right])
        of_right = output[:batch] + output[first_right:]
        if summed is not None and summed == _take(right, of_right):
            return math.prod(summed)
    return None


def _take(sizes: Dimensions, taken: Dimensions) -> list[int] | None:
    """Return `sizes` in ascending order without the sizes `taken`; None if one of these is
    missing."""
    left = sorted(sizes)
    for size in taken:
        if size not in left:
            return None
        left.remove(size)
    return left
