"""Which dimensions of a dot are one is told from shapes: by hand and at random."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.features.einsum import Einsum, count_terms, label_dot

PRIMES = [2, 3, 5, 7, 11, 13, 17, 19]


def divide(sizes: list[int], counts: list[int]) -> Iterator[list[int]]:
    """So many of the sizes, so many of the next ones, ..."""
    rest = iter(sizes)
    return (list(islice(rest, count)) for count in counts)


@pytest.mark.parametrize(
    ("left", "right", "output", "expected"),
    [
        ((3, 4), (4, 5), (3, 5), ((1,), (0,))),
        ((4, 3), (4, 5), (3, 5), ((0,), (0,))),
        ((3, 4), (5, 4), (3, 5), ((1,), (1,))),
        ((2, 3, 4), (2, 4, 5), (2, 3, 5), ((2,), (1,))),  # a batch of 2
        ((2, 3, 4, 6), (4, 6, 5), (2, 3, 5), ((2, 3), (0, 1))),
        ((7, 7), (7, 7), (7, 7), ((1,), (0,))),  # all fit: as it is written mostly
        ((3,), (5,), (3, 5), ((), ())),
        ((3, 4), (5, 6), (3, 6), None),
    ],
)
def test_dimensions_that_the_output_does_not_have_are_summed(
    left: tuple[int, ...], right: tuple[int, ...], output: tuple[int, ...], expected: object
) -> None:
    found = label_dot(left, right, output)
    assert (found and found.summed) == expected


@given(st.permutations(PRIMES), st.lists(st.integers(0, 2), min_size=4, max_size=4), st.randoms())
def test_of_sizes_that_differ_every_dimension_is_found(
    sizes: list[int], counts: list[int], random: Random
) -> None:
    batch, left, right, summed = divide(sizes, counts)
    shapes = []
    for own in (left, right):  # own dimensions stay in order, the others stand anywhere
        shape = list(own)
        for size in (*batch, *summed):
            shape.insert(random.randint(0, len(shape)), size)
        shapes.append(tuple(shape))
    found = label_dot(*shapes, tuple(batch + left + right))
    assert found is not None
    for shape, dimensions in zip(shapes, found.summed, strict=True):
        assert sorted(shape[place] for place in dimensions) == sorted(summed)
    by_letter: dict[int, set[int]] = {}
    for letters, shape in zip(found, (*shapes, batch + left + right), strict=True):
        for letter, size in zip(letters, shape, strict=True):
            by_letter.setdefault(letter, set()).add(size)
    assert all(len(own) == 1 for own in by_letter.values())  # a letter has one size everywhere


def test_what_is_made_alike_is_summed_alike() -> None:
    """Queries (batch, rows, 8) and keys (batch, rows, 8), of as many rows as each has numbers."""
    shape = (2, 8, 8)
    assert label_dot(shape, shape, shape) == Einsum((0, 1, 3), (0, 3, 2), (0, 1, 2))
    assert label_dot(shape, shape, shape, is_alike=True) == Einsum((0, 1, 3), (0, 2, 3), (0, 1, 2))


def test_what_a_module_says_is_believed() -> None:
    found = label_dot((7, 7), (7, 7), (7, 7), summed=((0,), (1,)))
    assert found is not None
    assert found.summed == ((0,), (1,))
    assert label_dot((3, 4), (4, 5), (3, 5), summed=((0,), (0,))) is None


@pytest.mark.parametrize(
    ("left", "right", "output", "is_usual"),
    [
        ((3, 4), (4, 5), (3, 5), True),
        ((3, 4), (5, 4), (3, 5), False),
        ((4, 3), (4, 5), (3, 5), False),
        ((2, 3, 4), (2, 4, 5), (2, 3, 5), True),
        ((2, 3, 4), (4, 2, 5), (2, 3, 5), False),
    ],
)
def test_matrices_are_multiplied_rows_by_columns(
    left: tuple[int, ...], right: tuple[int, ...], output: tuple[int, ...], is_usual: bool
) -> None:
    found = label_dot(left, right, output)
    assert found is not None
    assert found.is_usual == is_usual


@given(st.permutations(PRIMES), st.lists(st.integers(0, 2), min_size=4, max_size=4), st.randoms())
def test_a_dot_sums_what_its_output_does_not_have(
    sizes: list[int], counts: list[int], random: Random
) -> None:
    batch, left, right, summed = divide(sizes, counts)
    operands = [
        random.sample(own, len(own)) for own in (batch + left + summed, batch + right + summed)
    ]
    output = tuple(batch + left + right)
    assert count_terms(tuple(operands[0]), tuple(operands[1]), output) == math.prod(summed)


def test_shapes_that_are_no_dot_have_no_terms() -> None:
    assert count_terms((3, 4), (5, 6), (3, 6)) is None


def search_terms(left: list[int], right: list[int], output: list[int]) -> int | None:
    """The same by trying every way to divide the output."""
    for batch in range(len(output) + 1):
        for first_right in range(batch, len(output) + 1):
            of_left = Counter(output[:first_right])
            of_right = Counter(output[:batch] + output[first_right:])
            fits = of_left <= Counter(left) and of_right <= Counter(right)
            summed = Counter(left) - of_left
            if fits and summed == Counter(right) - of_right:
                return math.prod(summed.elements())
    return None


SIZES = st.lists(st.integers(2, 4), max_size=5)


@settings(max_examples=500, deadline=None)
@given(SIZES, SIZES, SIZES)
def test_terms_are_those_of_a_search_over_all_ways(
    left: list[int], right: list[int], output: list[int]
) -> None:
    found = count_terms(tuple(left), tuple(right), tuple(output))
    assert found == search_terms(left, right, output)
