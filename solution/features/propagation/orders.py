"""Compute with layouts packed into one integer: dimensions minor to major, three bits each.

Source: how a layout changes at a transpose, broadcast or reshape is XLA's
(`LayoutAssignment::ChooseOperandLayoutFromOutputLayout`, `ShapeUtil::AlignLayouts`).
"""

import numpy as np
from numba import njit
from numba.core.options import DefaultOptions

UNSET = -1
BITS, MASK = 3, 7
# Kinds of copies. ALIKE: no copy. BLOCKS: the contiguous dimension stays the same. SWAPPED: only
# the two minor dimensions change places. SCATTERED: any other copy.
ALIKE, BLOCKS, SWAPPED, SCATTERED = range(4)

# Compiles a function that creates no array and that compiled functions call, not Python: there it
# would crash. Programs and states are records of some forty arrays. To count references to each of
# them at every call takes numba ten times as long as what the functions do, and to compile what
# Python would call takes a third of the time of compiling. The option _nrt is not documented, so it
# is set only if this numba has it.
UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
compiled = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **UNCOUNTED)


@compiled
def pack(dimensions, rank):
    """Return a layout as one integer; `dimensions` lists its dimensions minor to major."""
    number = np.int64(0)
    for slot in range(rank):
        number |= np.int64(dimensions[slot]) << (BITS * slot)
    return number


@compiled
def unpack(number, slot):
    """Return the dimension at position `slot`; position 0 is the contiguous dimension."""
    return (number >> (BITS * slot)) & MASK


@compiled
def row_major(rank):
    """Return the packed row-major layout of a tensor: its last dimension is contiguous."""
    number = 0
    for slot in range(rank):
        number |= (rank - 1 - slot) << (BITS * slot)
    return number


@compiled
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


@compiled
def untransposed(number, order, rank):
    """Return the layout of a transpose's operand if its result has the layout `number`. `order`: as
    in the function transposed."""
    result = np.int64(0)
    for slot in range(rank):
        result |= np.int64(order[unpack(number, slot)]) << (BITS * slot)
    return result


@compiled
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


@compiled
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


@compiled
def count_ones(sizes, rank):
    """Return the number of dimensions of size 1."""
    count = 0
    for dimension in range(rank):
        count += sizes[dimension] == 1
    return count


@compiled
def with_ones_outermost(number, sizes, rank):
    """Return the layout in which dimensions of size 1 are the most major ones, row-major."""
    result, filled = without_ones(number, sizes, rank)
    result, _ = _append_ones(result, filled, sizes, rank)
    return result


@compiled
def _append_ones(number, filled, sizes, rank):
    """Add the dimensions of size 1, row-major, behind the first `filled` dimensions of a layout;
    return the layout and the number of its dimensions."""
    for dimension in range(rank - 1, -1, -1):
        if sizes[dimension] == 1:
            number |= dimension << (BITS * filled)
            filled += 1
    return number, filled


@compiled
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


@compiled
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


@compiled
def _tiled(number, slot, sizes):
    """Return the dimension at position `slot`; MASK for every dimension of size 1."""
    dimension = unpack(number, slot)
    return dimension if sizes[dimension] != 1 else MASK


@compiled
def aligned(number, sizes, rank, new_sizes, new_rank):
    """Return the layout of one side of a reshape (`new_sizes`) that makes the reshape a bitcast if
    the other side (`sizes`) has the layout `number`; UNSET if there is none. Dimensions of size 1
    become outermost, as in XLA."""
    known, count = without_ones(number, sizes, rank)
    result, filled, slot = 0, 0, 0
    # From minor to major, replace each group's dimensions by its new ones. They must be adjacent in
    # memory and in order.
    while slot < count:
        begin, end, new_begin, new_end = _find_group(
            sizes, rank, new_sizes, new_rank, unpack(known, slot)
        )
        for dimension in range(end - 1, begin - 1, -1):
            if sizes[dimension] != 1:
                if slot == count or unpack(known, slot) != dimension:
                    return UNSET
                slot += 1
        if begin == end:
            return UNSET
        for dimension in range(new_end - 1, new_begin - 1, -1):
            if new_sizes[dimension] != 1:
                result |= dimension << (BITS * filled)
                filled += 1
    result, filled = _append_ones(result, filled, new_sizes, new_rank)
    return result if filled == new_rank else UNSET


@compiled
def _find_group(sizes, rank, new_sizes, new_rank, dimension):
    """Divide the dimensions of a reshape's two sides into the smallest groups of equal size. Return
    where the group of `dimension` begins and ends on both sides: (begin, end, new begin, new end);
    four zeros if the sides differ in size."""
    end, new_end = 0, 0
    while end <= dimension:
        begin, new_begin, left, right = end, new_end, 1, 1
        # a group has at least one dimension of a size other than 1
        while left == 1 or left != right:
            if left <= right and end < rank:
                left *= sizes[end]
                end += 1
            elif left > right and new_end < new_rank:
                right *= new_sizes[new_end]
                new_end += 1
            else:
                return 0, 0, 0, 0
    return begin, end, new_begin, new_end
