"""Compute with layouts packed into one integer: dimensions minor to major, three bits each.

Source: how a layout changes at a transpose, broadcast or reshape is XLA's
(`LayoutAssignment::ChooseOperandLayoutFromOutputLayout`, `ShapeUtil::AlignLayouts`).
"""

import numpy as np
from numba import njit

from solution.domain.vocabulary import MAX_RANK

UNSET = -1
BITS, MASK = 3, 7
# Kinds of copies. ALIKE: no copy. BLOCKS: the contiguous dimension stays the same. SWAPPED: only
# the two minor dimensions change places. SCATTERED: any other copy.
ALIKE, BLOCKS, SWAPPED, SCATTERED = range(4)


@njit(cache=True, nogil=True)
def pack(dimensions, rank):
    """Return a layout as one integer; `dimensions` lists its dimensions minor to major."""
    number = np.int64(0)
    for slot in range(rank):
        number |= np.int64(dimensions[slot]) << (BITS * slot)
    return number


@njit(cache=True, nogil=True)
def unpack(number, slot):
    """Return the dimension at position `slot`; position 0 is the contiguous dimension."""
    return (number >> (BITS * slot)) & MASK


@njit(cache=True, nogil=True)
def row_major(rank):
    """Return the packed row-major layout of a tensor: its last dimension is contiguous."""
    number = 0
    for slot in range(rank):
        number |= (rank - 1 - slot) << (BITS * slot)
    return number


@njit(cache=True, nogil=True)
def transposed(number, order, rank):
    """Return the layout of a transpose's result if its operand has the layout `number`. `order`:
    (6,) the operand's dimension for each dimension of the result."""
    result = 0
    for slot in range(rank):
        wanted = unpack(number, slot)
        for old in range(rank):
            if order[old] == wanted:
                result |= old << (BITS * slot)
    return result


@njit(cache=True, nogil=True)
def untransposed(number, order, rank):
    """Return the layout of a transpose's operand if its result has the layout `number`. `order`: as
    in the function transposed."""
    result = np.int64(0)
    for slot in range(rank):
        result |= np.int64(order[unpack(number, slot)]) << (BITS * slot)
    return result


@njit(cache=True, nogil=True)
def filtered(number, kept, count, rank):
    """Return the layout of a broadcast's operand if its result has the layout `number`. `kept`:
    (count,) the result's dimension for each dimension of the operand."""
    result, filled = 0, 0
    for slot in range(rank):
        dimension = unpack(number, slot)
        for old in range(count):
            if kept[old] == dimension:
                result |= old << (BITS * filled)
                filled += 1
    return result


@njit(cache=True, nogil=True)
def without_ones(number, sizes, rank):
    """Return the layout without dimensions of size 1, and the number of dimensions left. Dimensions
    are not renumbered."""
    result, filled = 0, 0
    for slot in range(rank):
        dimension = unpack(number, slot)
        if sizes[dimension] != 1:
            result |= dimension << (BITS * filled)
            filled += 1
    return result, filled


@njit(cache=True, nogil=True)
def count_ones(sizes, rank):
    """Return the number of dimensions of size 1."""
    count = 0
    for dimension in range(rank):
        count += sizes[dimension] == 1
    return count


@njit(cache=True, nogil=True)
def with_ones_outermost(number, sizes, rank):
    """Return the layout in which dimensions of size 1 are the most major ones, row-major."""
    result, filled = without_ones(number, sizes, rank)
    for dimension in range(rank - 1, -1, -1):
        if sizes[dimension] == 1:
            result |= dimension << (BITS * filled)
            filled += 1
    return result


@njit(cache=True, nogil=True)
def compare(one, other, sizes, rank):
    """Return the kind of a copy between two layouts; ALIKE if no copy is needed."""
    if one == other:
        return ALIKE
    first, count = without_ones(one, sizes, rank)
    second, _ = without_ones(other, sizes, rank)
    if first == second:
        return ALIKE
    if unpack(first, 0) == unpack(second, 0):
        return BLOCKS
    is_swap = unpack(first, 0) == unpack(second, 1) and unpack(first, 1) == unpack(second, 0)
    rest = BITS * 2
    return SWAPPED if is_swap and (count == 2 or first >> rest == second >> rest) else SCATTERED


@njit(cache=True, nogil=True)
def compare_tiled(one, other, sizes, rank):
    """Return the kind of a copy between two layouts if the two minor dimensions are tiled. Then a
    dimension of size 1 is padded if it is a minor dimension, so its position matters there."""
    if one == other or rank < 2:
        return ALIKE
    minor, other_minor = _tiled(one, 0, sizes), _tiled(other, 0, sizes)
    second, other_second = _tiled(one, 1, sizes), _tiled(other, 1, sizes)
    outer, _ = without_ones(one >> 2 * BITS, sizes, rank - 2)
    other_outer, _ = without_ones(other >> 2 * BITS, sizes, rank - 2)
    if minor == other_minor:
        return ALIKE if second == other_second and outer == other_outer else BLOCKS
    is_swap = minor == other_second and second == other_minor and outer == other_outer
    return SWAPPED if is_swap else SCATTERED


@njit(cache=True, nogil=True)
def _tiled(number, slot, sizes):
    """Return the dimension at position `slot`; MASK for every dimension of size 1."""
    dimension = unpack(number, slot)
    return dimension if sizes[dimension] != 1 else MASK


@njit(cache=True, nogil=True)
def aligned(number, sizes, rank, new_sizes, new_rank):
    """Return the layout of one side of a reshape (`new_sizes`) that makes the reshape a bitcast if
    the other side (`sizes`) has the layout `number`; UNSET if there is none. Dimensions of size 1
    become outermost, as in XLA."""
    known, count = without_ones(number, sizes, rank)
    start, part_of = np.zeros((2, MAX_RANK + 1), np.int64), np.zeros(MAX_RANK, np.int64)
    old, new = np.zeros(MAX_RANK, np.int64), np.zeros(MAX_RANK, np.int64)
    old_count = list_dimensions(sizes, rank, old)
    new_count = list_dimensions(new_sizes, new_rank, new)
    parts = _divide(sizes, old, old_count, new_sizes, new, new_count, start)
    if parts < 0 or not _keeps_parts(known, count, old, start, parts, part_of):
        return UNSET
    result, filled, slot = 0, 0, 0
    # from minor to major, replace each group's old dimensions by its new ones
    while slot < count:
        part = part_of[unpack(known, slot)]
        for k in range(start[1, part + 1] - 1, start[1, part] - 1, -1):
            result |= new[k] << (BITS * filled)
            filled += 1
        slot += start[0, part + 1] - start[0, part]
    for dimension in range(new_rank - 1, -1, -1):
        if new_sizes[dimension] == 1:
            result |= dimension << (BITS * filled)
            filled += 1
    return result


@njit(cache=True, nogil=True)
def list_dimensions(sizes, rank, found):
    """Write the dimensions whose size is not 1 into `found`; return their number."""
    count = 0
    for dimension in range(rank):
        if sizes[dimension] != 1:
            found[count] = dimension
            count += 1
    return count


@njit(cache=True, nogil=True)
def _divide(sizes, old, old_count, new_sizes, new, new_count, start):
    """Divide the dimensions of a reshape's two sides into the smallest groups of equal size. Return
    the number of groups, or -1 if the sides differ in size. Write into `start` (2, MAX_RANK + 1)
    where each group begins in `old` and in `new`, the dimensions of a size other than 1."""
    parts, i, j = 0, 0, 0
    while i < old_count or j < new_count:
        start[0, parts], start[1, parts] = i, j
        left, right = np.int64(1), np.int64(1)
        while i == start[0, parts] or left != right:
            if left <= right and i < old_count:
                left *= sizes[old[i]]
                i += 1
            elif left > right and j < new_count:
                right *= new_sizes[new[j]]
                j += 1
            else:
                return -1
        parts += 1
    start[0, parts], start[1, parts] = i, j
    return parts


@njit(cache=True, nogil=True)
def _keeps_parts(known, count, old, start, parts, part_of):
    """Return True if the dimensions of each group (see _divide) are adjacent in memory and in
    order; write the group of each dimension into `part_of`."""
    for part in range(parts):
        slot = -1
        for k in range(start[0, part], start[0, part + 1]):
            part_of[old[k]] = part
            if slot == -1:
                for other in range(count):
                    if unpack(known, other) == old[k]:
                        slot = other
            else:
                slot -= 1
                if slot < 0 or unpack(known, slot) != old[k]:
                    return False
    return True
