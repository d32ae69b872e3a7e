"""Infer attributes of instructions: dimension numbers, windows, slices, padding, directions.

Lifting turns a graph back into a program. The graph's node features hold only the first entries of
each attribute (two for slices and padding, up to six for other attributes). For some attributes
they also hold the sum and the product of all entries.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

from solution.collecting.lifting import products
from solution.collecting.lifting.draft import FLOATS, PRED, TUPLE, Draft
from solution.collecting.lifting.tuple_types import TupleTypes
from solution.domain import vocabulary
from solution.programs.hlo.nodes import FEW, SPATIAL

Fields = dict[str, Any]
# First columns of node features of slices and paddings. Each of these features has four columns:
# the values of the first two dimensions, then the sum and the product over all dimensions.
STARTS, STRIDES, LIMITS, LOWS, HIGHS = 109, 113, 117, 125, 129
IS_STABLE = 133
# maximum number of combinations of slice starts that are tried for the dimensions beyond the second
MAX_TRIES = 20_000
MAX_WAYS = 2000  # maximum number of compared candidates for a gather's dimension numbers
UNIFORM = 1  # number of the uniform distribution in XLA's enumeration
NO_TRANSPOSE = 1
# custom calls of a TPU's compiler that split and join 64-bit integers
HALVES = ("X64SplitLow", "X64SplitHigh")
JOINED = "X64Combine"
UNKNOWN_TARGET = "Unknown"
S64, U64, U32, S32 = 5, 9, 8, 4


class Indexing(NamedTuple):
    """Dimension numbers of a gather or a scatter; a scatter's updates take the output's role."""

    # dimensions of the output along which the elements of a slice lie
    offsets: list[int]
    # dimensions of the tensor in which a slice has size 1 and that the output lacks
    collapsed: list[int]
    mapped: list[int]  # dimensions of the tensor to which the components of an index vector refer
    vector: int  # dimension of the indices along which an index vector lies
    slices: list[int]  # sizes of a slice, one per dimension of the tensor


class Attributes:
    """Infers the attributes of the instructions of a draft (a graph that is being lifted)."""

    def __init__(self, draft: Draft, types: TupleTypes) -> None:
        self._draft = draft
        self._types = types

    def describe(self, node: int) -> Fields:
        """Return the fields of a node's message Instruction, except shape, operands and literal."""
        draft = self._draft
        row = draft.features[node]
        known: Fields = {
            "dimensions": self._list_dimensions(node),
            "window": {"dimensions": [vars(one) for one in products.read_window(draft, node)]},
            "feature_group_count": int(row[products.FEATURE_GROUPS]),
            "batch_group_count": int(row[products.BATCH_GROUPS]),
            "is_stable": bool(row[IS_STABLE]),
        }
        known = {name: value for name, value in known.items() if value}
        if known["window"] == {"dimensions": []} and draft.opcodes[node] != "convolution":
            del known["window"]
        rule = RULES.get(draft.opcodes[node])
        return known | rule(self, node) if rule is not None else known

    def _list_dimensions(self, node: int) -> list[int]:
        draft = self._draft
        listed = draft.features[node, vocabulary.DIMENSIONS].tolist()
        found = [axis for axis in listed if axis >= 0]
        if (draft.listed[node] >= vocabulary.MAX_RANK).any():
            return self._list_many(node)
        if draft.opcodes[node] == "reduce" and draft.kinds[node] == TUPLE:
            rank = len(draft.sizes[self._types.operands[node][0]])
            left = [draft.sizes[one] for one in draft.users[node] if draft.kinds[one] != TUPLE]
            count = rank - len(left[0]) if left else len(found)
            return [max(0, axis) for axis in listed[:count]]
        if draft.opcodes[node] == "reverse" and len(found) == 1 and len(draft.sizes[node]) > 1:
            draft.guesses.add("reversed dimensions: [0] and [0, ...] look alike", node)
        return found

    def _list_many(self, node: int) -> list[int]:
        """Return a node's attribute `dimensions`, of which one is above 5. They are read from the
        file's features, because repair_padding drops such dimensions."""
        draft, rank = self._draft, len(self._draft.sizes[node])
        read = len(draft.sizes[self._types.operands[node][0]]) if draft.operands[node] else 0
        counts = {"broadcast": read, "reduce": read - rank}
        found = [int(axis) for axis in draft.listed[node]]
        if draft.opcodes[node] == "transpose":
            return found + [axis for axis in range(rank) if axis not in found]
        return found[: counts.get(draft.opcodes[node], 1)]

    def _number_parameter(self, node: int) -> Fields:
        return {"parameter_number": self._draft.numbers[node]}

    def _take_element(self, node: int) -> Fields:
        return {"tuple_index": self._types.index[node]}

    def _convolve(self, node: int) -> Fields:
        draft = self._draft
        row, window = draft.features[node], products.read_window(draft, node)
        spatial = len(window)
        if spatial > SPATIAL:
            raise draft.refuse(node, f"it has {spatial} spatial dimensions, {SPATIAL} are known")
        pair = self._types.operands[node]
        names = {
            "input_batch_dimension": vocabulary.CONVOLUTION_INPUT_BATCH,
            "input_feature_dimension": vocabulary.CONVOLUTION_INPUT_FEATURE,
            "kernel_input_feature_dimension": vocabulary.CONVOLUTION_KERNEL_INPUT,
            "kernel_output_feature_dimension": vocabulary.CONVOLUTION_KERNEL_OUTPUT,
            "output_batch_dimension": vocabulary.CONVOLUTION_OUTPUT_BATCH,
            "output_feature_dimension": vocabulary.CONVOLUTION_OUTPUT_FEATURE,
        }
        numbers: Fields = {name: int(row[column]) for name, column in names.items()}
        for name, columns in (
            ("input_spatial_dimensions", vocabulary.CONVOLUTION_INPUT_SPATIAL),
            ("kernel_spatial_dimensions", vocabulary.CONVOLUTION_KERNEL_SPATIAL),
        ):
            numbers[name] = row[columns].tolist()[:spatial]
        out = products.find_output_dimensions(draft, node, pair) or []
        return {"convolution": numbers | {"output_spatial_dimensions": out}}

    def _multiply(self, node: int) -> Fields:
        found = products.find_dot_dimensions(self._draft, node)
        self._draft.guesses.add("dimensions that dot sums, by sizes", node)
        return {"dot": found}

    def _slice(self, node: int) -> Fields:
        draft = self._draft
        (source,) = self._types.operands[node]
        whole, part, row = draft.sizes[source], draft.sizes[node], draft.features[node]
        starts, strides, limits = (
            row[column : column + FEW].tolist()[: len(part)] for column in (STARTS, STRIDES, LIMITS)
        )
        cut = [axis for axis in range(FEW, len(part)) if whole[axis] != part[axis]]
        full = [axis for axis in range(FEW, len(part)) if axis not in cut]
        # sums of starts, strides and limits over the dimensions in `cut`
        left = [
            int(row[STARTS + FEW]) - sum(starts),
            int(row[STRIDES + FEW]) - sum(strides) - len(full),
            int(row[LIMITS + FEW]) - sum(limits) - sum(whole[axis] for axis in full),
        ]
        if len(cut) > 1:
            draft.guesses.add("where dimensions of a slice begin", node)
        found = {axis: (0, 1, whole[axis]) for axis in full}
        found |= self._cut(node, cut, left)
        for axis in range(FEW, len(part)):
            start, stride, limit = found[axis]
            starts.append(start)
            strides.append(stride)
            limits.append(limit)
        columns = zip(starts, strides, limits, strict=True)
        return {"slices": [{"start": a, "stride": b, "limit": c} for a, b, c in columns]}

    def _cut(self, node: int, cut: list[int], left: list[int]) -> dict[int, tuple[int, int, int]]:
        """Return {dimension: (start, stride, limit)} for `cut`, the dimensions beyond the second
        that a slice shortens. `left`: the sums of their starts, of their strides, of their limits.
        """
        draft = self._draft
        if not cut:
            return {}
        if len(cut) == 1:
            return {cut[0]: (left[0], left[1], left[2])}
        part, row = draft.sizes[node], draft.features[node]
        whole = draft.sizes[self._types.operands[node][0]]
        room = [range(whole[axis] - part[axis] + 1) for axis in cut]
        fallback: dict[int, tuple[int, int, int]] | None = None
        for tried, begins in enumerate(product(*room)):
            if tried > MAX_TRIES:
                break
            found = {
                axis: (begin, 1, begin + part[axis])
                for axis, begin in zip(cut, begins, strict=True)
            }
            if sum(begins) == left[0] and left[1] == len(cut):
                fallback = fallback or found
                others = prod(whole[axis] for axis in range(FEW, len(part)) if axis not in cut)
                limits = row[LIMITS : LIMITS + FEW].tolist()
                cut_limits = prod(limit for _, _, limit in found.values())
                if prod(limits) * others * cut_limits == row[LIMITS + 3]:
                    return found
        if fallback is None:
            raise draft.refuse(node, "it cuts several dimensions that the features leave out")
        return fallback

    def _pad(self, node: int) -> Fields:
        draft = self._draft
        source = draft.sizes[self._types.operands[node][0]]
        part, row = draft.sizes[node], draft.features[node]
        lows, highs = (row[column : column + FEW].tolist()[: len(part)] for column in (LOWS, HIGHS))
        left = [int(row[LOWS + FEW]) - sum(lows), int(row[HIGHS + FEW]) - sum(highs)]
        padded = [axis for axis in range(FEW, len(part)) if source[axis] != part[axis]]
        if len(padded) > 1 and any(left):
            draft.guesses.add("which dimensions are padded by how much", node)
        # Each padded dimension beyond the second gets as much of the remaining padding (`left`) as
        # its size allows; the last dimension gets the rest.
        for axis in range(FEW, len(part)):
            more = part[axis] - source[axis]
            is_last = axis == (padded or [0])[-1]
            low = left[0] if is_last else max(0, min(left[0], more)) if axis in padded else 0
            high = left[1] if is_last else max(0, min(left[1], more - low)) if axis in padded else 0
            left = [left[0] - low, left[1] - high]
            lows.append(low)
            highs.append(high)
        dimensions = []
        for size, padded_size, low, high in zip(source, part, lows, highs, strict=True):
            more = padded_size - size - low - high
            if more and (size < 2 or more % (size - 1)):
                raise draft.refuse(node, "its padding does not add up to its size")
            interior = more // (size - 1) if more else 0
            if interior:
                draft.guesses.add("interior padding, by sizes", node)
            edges = {"edge_padding_low": low, "edge_padding_high": high}
            dimensions.append(edges | {"interior_padding": interior})
        return {"padding": {"dimensions": dimensions}}

    def _slice_dynamically(self, node: int) -> Fields:
        return {"dynamic_slice_sizes": self._draft.sizes[node]}

    def _gather(self, node: int) -> Fields:
        draft = self._draft
        tensor, indices = (draft.sizes[one] for one in self._types.operands[node])
        found = self._find_indexing(node, tensor, indices, draft.sizes[node])
        numbers = {
            "offset_dims": found.offsets,
            "collapsed_slice_dims": found.collapsed,
            "start_index_map": found.mapped,
            "index_vector_dim": found.vector,
        }
        return {"gather": numbers, "gather_slice_sizes": found.slices}

    def _scatter(self, node: int) -> Fields:
        sizes = [self._draft.sizes[one] for one in self._types.operands[node]]
        found = self._find_indexing(node, *sizes)
        numbers = {
            "update_window_dims": found.offsets,
            "inserted_window_dims": found.collapsed,
            "scatter_dims_to_operand_dims": found.mapped,
            "index_vector_dim": found.vector,
        }
        return {"scatter": numbers}

    def _find_indexing(
        self, node: int, tensor: Sequence[int], indices: Sequence[int], output: Sequence[int]
    ) -> Indexing:
        draft = self._draft
        draft.guesses.add(f"dimensions that {draft.opcodes[node]} indexes, by sizes", node)
        found = find_indexing(tensor, indices, output)
        if found is None:
            raise draft.refuse(node, "no dimension numbers fit the sizes of its tensors")
        return found

    def _compare(self, node: int) -> Fields:
        """Guess a comparison's direction: LT if a loop or sort calls its computation, GE if a
        select-and-scatter does; otherwise GT for floats, EQ for predicates, GE for integers."""
        draft = self._draft
        draft.guesses.add("direction of compare", node)
        caller = draft.callers.get(draft.computation[node])
        calling = draft.opcodes[caller] if caller is not None else ""
        kind = draft.kinds[self._types.operands[node][0]]
        directions = {"select-and-scatter": "GE", "while": "LT", "sort": "LT"}
        default = "GT" if kind in FLOATS else "EQ" if kind == PRED else "GE"
        return {"comparison_direction": directions.get(calling, default)}

    def _draw(self, node: int) -> Fields:
        self._draft.guesses.add("distribution of rng: uniform", node)
        return {"distribution": UNIFORM}

    def _call_custom(self, node: int) -> Fields:
        """Infer a custom call's target from the element types: it splits a 64-bit integer (HALVES)
        or joins two halves (JOINED); otherwise UNKNOWN_TARGET."""
        draft, operands = self._draft, self._types.operands[node]
        read = [draft.kinds[one] for one in operands]
        if draft.kinds[node] in (U32, S32) and read in ([S64], [U64]):
            draft.guesses.add("which half of an integer a custom call takes", node)
            readers = [one for one in draft.users[operands[0]] if draft.operands[one] == operands]
            return {"custom_call_target": HALVES[min(1, readers.index(node))]}
        if draft.kinds[node] in (S64, U64) and len(read) == 2:
            return {"custom_call_target": JOINED}
        draft.guesses.add("target of custom-call, unknown", node)
        return {"custom_call_target": UNKNOWN_TARGET}

    def _fuse(self, node: int) -> Fields:
        self._draft.guesses.add("kind of fusion", node)
        return {"fusion_kind": "kLoop"}

    def _normalize(self, node: int) -> Fields:
        """Infer the feature dimension: the last one that is as long as the scale (operand 1)."""
        draft = self._draft
        tensor, scale = (draft.sizes[one] for one in self._types.operands[node][:2])
        fitting = [axis for axis, size in enumerate(tensor) if (size,) == scale]
        if not fitting:
            raise draft.refuse(node, "no dimension is as long as its scale")
        draft.guesses.add("feature dimension of a batch normalization", node)
        return {"feature_index": fitting[-1], "epsilon": 1e-3}

    def _transform(self, node: int) -> Fields:
        """Infer a Fourier transform's type from the element types; assume the last dimension."""
        draft = self._draft
        source = self._types.operands[node][0]
        kinds = draft.kinds[source] in FLOATS, draft.kinds[node] in FLOATS
        number = {(False, False): 0, (True, False): 2, (False, True): 3}[kinds]
        length = (draft.sizes[source] if number == 2 else draft.sizes[node])[-1:]
        draft.guesses.add("dimensions that fft transforms: the last", node)
        return {"fft_type": number, "fft_length": length}

    def _solve(self, node: int) -> Fields:
        draft = self._draft
        matrix = draft.sizes[self._types.operands[node][0]]
        is_left = draft.sizes[node][-2] == matrix[-1]
        draft.guesses.add("options of triangular-solve", node)
        options = {"left_side": is_left, "lower": True, "transpose_a": NO_TRANSPOSE}
        return {"triangular_solve": options}

    def _reduce_precision(self, node: int) -> Fields:
        self._draft.guesses.add("bits of reduce-precision: those of bfloat16", node)
        return {"exponent_bits": 8, "mantissa_bits": 7}


def find_indexing(
    tensor: Sequence[int], indices: Sequence[int], output: Sequence[int]
) -> Indexing | None:
    """Return the likeliest dimension numbers of a gather, given the sizes of its tensor, indices
    and output; None if none fit. Preferred are slices of whole dimensions, then indices into the
    first dimensions, then outputs that begin with the dimensions of the indices."""
    best: tuple[tuple[int, ...], Indexing] | None = None
    for count, found in enumerate(_list_ways(tensor, indices, output)):
        cut = {axis for axis, size in enumerate(found.slices) if size != tensor[axis]}
        cost = (
            len(cut.union(found.collapsed) - set(found.mapped)),
            len(cut) - len(found.collapsed),
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
    """Yield dimension numbers that fit the sizes of a gather's tensors, see find_indexing."""
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
    """Return the `width` dimensions that an index vector addresses: collapsed dimensions, then
    dimensions that the slice shortens, then the others; each group in ascending order."""
    cut = [axis for axis, size in enumerate(tensor) if slices[axis] != size]
    order = [*collapsed, *cut, *range(len(tensor))]
    return sorted(dict.fromkeys(order).keys(), key=order.index)[:width]


RULES: dict[str, Callable[[Attributes, int], Fields]] = {
    "parameter": Attributes._number_parameter,
    "get-tuple-element": Attributes._take_element,
    "convolution": Attributes._convolve,
    "dot": Attributes._multiply,
    "slice": Attributes._slice,
    "pad": Attributes._pad,
    "dynamic-slice": Attributes._slice_dynamically,
    "gather": Attributes._gather,
    "scatter": Attributes._scatter,
    "compare": Attributes._compare,
    "rng": Attributes._draw,
    "custom-call": Attributes._call_custom,
    "fusion": Attributes._fuse,
    **dict.fromkeys(
        ["batch-norm-training", "batch-norm-inference", "batch-norm-grad"], Attributes._normalize
    ),
    "fft": Attributes._transform,
    "triangular-solve": Attributes._solve,
    "reduce-precision": Attributes._reduce_precision,
}
