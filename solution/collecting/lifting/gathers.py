"""Infer the dimensions that a gather or a scatter indexes from its tensors' sizes."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

MAX_WAYS = 2000  # number of compared solutions


class Indexing(NamedTuple):
    """The dimension numbers of a gather; of a scatter too, with its updates as the output."""

    offsets: list[int]  # dimensions of the output that belong to a slice
    collapsed: list[int]  # dimensions of the tensor whose slice has size 1 and is dropped
    mapped: list[int]  # dimensions of the tensor that an index vector addresses
    vector: int  # the dimension of the indices that holds the index vectors
    slices: list[int]  # sizes of a slice


def find_indexing(
    tensor: Sequence[int], indices: Sequence[int], output: Sequence[int]
) -> Indexing | None:
    """Return the likeliest dimension numbers for tensors of these sizes; None if none fit.

    Preferred are slices of whole dimensions, indices into the first dimensions, and outputs that
    begin with the dimensions of the indices.
    """
    best: tuple[tuple[int, ...], Indexing] | None = None
    for count, found in enumerate(_list_ways(tensor, indices, output)):
        cut = sum(size != part for size, part in zip(tensor, found.slices, strict=True))
        needed = {axis for axis, part in enumerate(found.slices) if part != tensor[axis]} | set(
            found.collapsed
        )
        cost = (
            len(needed - set(found.mapped)),
            cut - len(found.collapsed),
            sum(found.collapsed),
            -sum(found.offsets),
            found.vector,
        )
        if best is None or cost < best[0]:
            best = cost, found
        if count >= MAX_WAYS:
            break
    return None if best is None else best[1]


def _list_ways(
    tensor: Sequence[int], indices: Sequence[int], output: Sequence[int]
) -> Iterator[Indexing]:
    rank = len(tensor)
    for vector in range(len(indices), -1, -1):
        batch = [size for axis, size in enumerate(indices) if axis != vector]
        width = indices[vector] if vector < len(indices) else 1
        pieces = len(output) - len(batch)
        if not 0 <= pieces <= rank or width > rank:
            continue
        for kept in combinations(range(len(output)), len(batch)):
            if [output[axis] for axis in kept] != batch:
                continue
            offsets = [axis for axis in range(len(output)) if axis not in kept]
            for collapsed in combinations(range(rank), rank - pieces):
                rest = [axis for axis in range(rank) if axis not in collapsed]
                pairs = list(zip(rest, offsets, strict=True))
                if any(output[offset] > tensor[axis] for axis, offset in pairs):
                    continue
                slices = [1] * rank
                for axis, offset in pairs:
                    slices[axis] = output[offset]
                yield Indexing(
                    offsets, list(collapsed), _map(tensor, slices, collapsed, width), vector, slices
                )


def _map(
    tensor: Sequence[int], slices: Sequence[int], collapsed: Sequence[int], width: int
) -> list[int]:
    """Return `width` indexed dimensions: collapsed ones, cut ones, then the first of the others."""
    cut = [axis for axis, size in enumerate(tensor) if slices[axis] != size]
    order = [*collapsed, *cut, *range(len(tensor))]
    return sorted(dict.fromkeys(order).keys(), key=order.index)[:width]
