"""Which dimensions of a dot's operands and of its output are one: as einsum's letters say it.

The npz files do not say what a dot sums, but shapes whose sizes differ do: an output has the
dimensions of the batch, then the left operand's own, then the right one's, each in their order;
what either operand has besides is summed.
"""

import math
from functools import lru_cache
from itertools import combinations, permutations
from typing import NamedTuple

Dimensions = tuple[int, ...]


class Einsum(NamedTuple):
    """A letter for each dimension; what the output has not is summed."""

    left: Dimensions
    right: Dimensions
    output: Dimensions

    @property
    def batch(self) -> Dimensions:
        """The letters that both operands and the output have, as the output has them."""
        return tuple(one for one in self.output if one in self.left and one in self.right)

    @property
    def summed(self) -> tuple[Dimensions, Dimensions]:
        """The dimensions of the left operand that are summed, and those of the right one."""
        left, right = (
            tuple(place for place, letter in enumerate(own) if letter not in self.output)
            for own in (self.left, self.right)
        )
        return left, right

    @property
    def is_usual(self) -> bool:
        """Whether the last dimensions of the left operand and the first of the right are summed.

        But for those of the batch, which come before. So it is where matrices are multiplied.
        """
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
    """The letters of a dot whose operands and output have these sizes; None where none fit.

    Where sizes repeat, several ways fit: then the fewest batch dimensions, which come first, and of
    the others the last ones of the left operand and the first ones of the right are summed, which
    is how products are written mostly.

    Args:
        is_alike: both operands were made in the same way, so the same dimensions of both are summed
            where that fits, as in the product of queries and keys.
        summed: what is summed, where a module says it.
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
    """The ways to give the letters `kept` to an operand, the first `batch` of them anywhere.

    The others keep their order. What is left is summed; its letters follow by size.
    """
    found = []
    for summed in combinations(range(len(shape)), len(shape) - len(kept)):
        rest = [place for place in range(len(shape)) if place not in summed]
        for first in permutations(rest, batch):
            places = [*first, *(place for place in rest if place not in first)]
            if [shape[place] for place in places] == [output[letter] for letter in kept]:
                letters = dict(zip(places, kept, strict=True))
                by_size = sorted(summed, key=shape.__getitem__)
                letters |= {place: len(output) + k for k, place in enumerate(by_size)}
                found.append(tuple(letters[place] for place in range(len(shape))))
                break
    return found


def _sizes(letters: Dimensions, shape: Dimensions, output: Dimensions) -> list[int]:
    """Of what is summed, ascending."""
    return sorted(
        size for letter, size in zip(letters, shape, strict=True) if letter >= len(output)
    )


@lru_cache(maxsize=1 << 14)
def count_terms(left: Dimensions, right: Dimensions, output: Dimensions) -> int | None:
    """How many products an element of a dot sums, by the sizes of its operands and its output.

    Unlike label_dot it finds dimensions of an operand in any order. None where nothing fits; of
    several ways the one with the smallest batch.
    """
    for batch in range(len(output) + 1):
        # Both operands have as many dimensions left to sum, which leaves one place to divide.
        first_right, odd = divmod(len(left) - len(right) + len(output) + batch, 2)
        if odd or not batch <= first_right <= len(output):
            continue
        summed = _take(left, output[:first_right])
        of_right = output[:batch] + output[first_right:]
        if summed is not None and summed == _take(right, of_right):
            return math.prod(summed)
    return None


def _take(sizes: Dimensions, taken: Dimensions) -> list[int] | None:
    """What is left of the sizes, ascending; None where some that are taken are not among them."""
    left = sorted(sizes)
    for size in taken:
        if size not in left:
            return None
        left.remove(size)
    return left
