"""Which dimensions a gather or a scatter indexes, by the sizes of its tensors."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

MAX_WAYS = 2000  # that are compared


class Indexing(NamedTuple):
    """The dimension numbers of a gather; a scatter has the same, its updates are the output."""

    offsets: list[int]  # dimensions of the output that are pieces of the tensor
    collapsed: list[int]  # dimensions of the tensor of which one index is read at a time
    mapped: list[int]  # dimensions of the tensor that the indices run along
    vector: int  # the dimension of the indices that holds them
    slices: list[int]  # sizes of a piece


def find_indexing(
    tensor: Sequence[int], indices: Sequence[int], output: Sequence[int]
) -> Indexing | None:
    """The likeliest dimension numbers for tensors of these sizes; None where none fit.

    Pieces are whole dimensions where that fits, the first dimensions are indexed, and the
    dimensions of the indices come first in the output.
    """
    best: tuple[tuple[int, ...], Indexing] | None = None
    for count, found in enumerate(_list_ways(tensor, indices, output)):
        cut = sum(size != own for size, own in zip(tensor, found.slices, strict=True))
        needed = {axis for axis, own in enumerate(found.slices) if own != tensor[axis]} | set(
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
    """So many dimensions: those that are collapsed or cut, then the first of the others."""
    cut = [axis for axis, size in enumerate(tensor) if slices[axis] != size]
    order = [*collapsed, *cut, *range(len(tensor))]
    return sorted(dict.fromkeys(order).keys(), key=order.index)[:width]
