"""Infer the operand order and the summed dimensions of convolutions and dots."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from solution.collecting.lifting.draft import WINDOW_COUNTS, Draft
from solution.domain import vocabulary
from solution.features.einsum import Einsum
from solution.features.operations import find_operands

# {attribute of a window: its first feature column}; each attribute has a column per dimension.
WINDOW_COLUMNS = {"size": 37, "stride": 45, "padding_low": 53, "padding_high": 61,
                  "window_dilation": 69, "base_dilation": 77}  # fmt: skip
REVERSAL = 85  # first feature column of `window_reversal`
FEATURE_GROUPS, BATCH_GROUPS = 107, 108  # feature columns of a convolution's group counts


@dataclass(frozen=True)
class WindowDimension:
    """A window along one dimension, with the field names of XLA's WindowDimension."""

    size: int
    stride: int
    padding_low: int
    padding_high: int
    window_dilation: int
    base_dilation: int
    window_reversal: bool

    def count(self, size: int) -> int:
        """Return the number of window positions along a dimension with `size` elements."""
        dilated = (size - 1) * self.base_dilation + 1 if size else 0
        length = (self.size - 1) * self.window_dilation + 1
        room = dilated + self.padding_low + self.padding_high - length
        return room // max(1, self.stride) + 1 if room >= 0 else 0


def read_window(draft: Draft, node: int) -> list[WindowDimension]:
    """Return a node's window, one entry per dimension; empty if the node has no window."""
    row = draft.features[node]
    return [
        WindowDimension(
            **{name: int(row[column + axis]) for name, column in WINDOW_COLUMNS.items()},
            window_reversal=bool(row[REVERSAL + axis]),
        )
        for axis in range(int(row[WINDOW_COUNTS].sum()))
    ]


def order_convolution(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return the nodes [input, kernel] of a convolution. If the shapes allow both orders, use the
    guess of `find_operands`."""
    pairs = [list(pair) for pair in permutations(operands, 2)] or [operands * 2]
    fitting = [pair for pair in pairs if find_output_dimensions(draft, node, pair) is not None]
    if not fitting:
        raise draft.refuse(node, "no two of its operands have sizes that it can convolve")
    if len(fitting) > 1:
        draft.guesses.add("order of the operands of convolution", node)
        operands_found = find_operands(draft.graph)
        guess = [int(operands_found.input[node]), int(operands_found.kernel[node])]
        return guess if guess in fitting else fitting[0]
    return fitting[0]


def find_output_dimensions(draft: Draft, node: int, pair: Sequence[int]) -> list[int] | None:
    """Return a convolution's spatial output dimension for each dimension of its window; None if the
    sizes of `pair` (input and kernel) do not fit."""
    left, right = (draft.sizes[one] for one in pair)
    output, window, row = draft.sizes[node], read_window(draft, node), draft.features[node]
    rank = len(window) + 2
    if {len(left), len(right), len(output)} != {rank}:
        return None
    batch, feature = int(row[vocabulary.CONVOLUTION_INPUT_BATCH]), int(row[94])
    # the kernel's dimensions for input features and for output features
    given, made = int(row[99]), int(row[100])
    out_batch, out_feature = int(row[105]), int(row[106])
    groups, batches = (max(1, int(row[column])) for column in (FEATURE_GROUPS, BATCH_GROUPS))
    spatial = row[vocabulary.CONVOLUTION_INPUT_SPATIAL].tolist()[: len(window)]
    kernel = row[vocabulary.CONVOLUTION_KERNEL_SPATIAL].tolist()[: len(window)]
    dimensions = (batch, feature, *spatial), (given, made, *kernel)
    if any(sorted(axes) != list(range(rank)) for axes in dimensions) or out_batch == out_feature:
        return None
    counts = [one.count(left[axis]) for one, axis in zip(window, spatial, strict=True)]
    is_fit = (
        [right[axis] for axis in kernel] == [one.size for one in window]
        and left[feature] == right[given] * groups
        and left[batch] == output[out_batch] * batches
        and right[made] == output[out_feature]
    )
    rest = [axis for axis in range(rank) if axis not in (out_batch, out_feature)]
    orders = (list(order) for order in permutations(rest)) if is_fit else iter(())
    return next((axes for axes in orders if [output[axis] for axis in axes] == counts), None)


def order_dots(draft: Draft, dots: Sequence[int]) -> dict[int, list[int]]:
    """Return each dot's left and right operand. Raises NotLiftedError if their sizes do not fit."""
    if not dots:
        return {}
    found = find_operands(draft.graph)
    for node in dots:
        if node not in found.letters:
            raise draft.refuse(node, "the sizes of its operands do not fit its sizes")
    return {node: [int(found.input[node]), int(found.kernel[node])] for node in dots}


def find_dot_dimensions(draft: Draft, node: int) -> dict[str, list[int]]:
    """Return a dot's summed and batch dimensions, as fields of the message DotDimensions. Raises
    NotLiftedError if the output's dimensions are not in HLO's order, see _is_ordered."""
    letters = find_operands(draft.graph).letters[node]
    if not _is_ordered(letters):
        raise draft.refuse(node, "its output has the dimensions of its operands in another order")
    summed = [letter for letter in letters.left if letter not in letters.output]
    return {
        "lhs_contracting_dimensions": [letters.left.index(letter) for letter in summed],
        "rhs_contracting_dimensions": [letters.right.index(letter) for letter in summed],
        "lhs_batch_dimensions": [letters.left.index(letter) for letter in letters.batch],
        "rhs_batch_dimensions": [letters.right.index(letter) for letter in letters.batch],
    }


def _is_ordered(letters: Einsum) -> bool:
    """Return True if the output's dimensions are in HLO's order: the batch dimensions, then the
    other dimensions of the left operand, then the other dimensions of the right operand."""
    batch = letters.batch
    left = [one for one in letters.left if one in letters.output and one not in batch]
    right = [one for one in letters.right if one in letters.output and one not in batch]
    return [*batch, *left, *right] == list(letters.output)
