"""Layouts of least padded size, and padded bytes: against all layouts, element by element, and a
TPU's compiler."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.domain.vocabulary import ELEMENT_BYTES, ELEMENT_TYPE, MAX_RANK
from solution.features.operations import num_bytes
from solution.features.preparation import repair_padding
from solution.features.propagation.backend import TPU
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.register_tiles import count_padded_bytes, share_matrix_unit
from solution.features.propagation.state_table import (
    BYTES,
    FEATURES,
    WRITTEN,
    list_state_features,
    state_tables,
)
from solution.features.propagation.states import COPY, FIRST, MADE, SECOND
from solution.features.propagation.tiles import DeviceLayouts, choose_layout
from solution.models.layout.known_costs import STARTED, add_known_costs, weigh_states
from solution.programs.compiler import Compiler
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import LEAST_ROWS, Layout, pad_slowly, unpack
from tests.made.builder import Builder, Shape


def pad(sizes: list[int], layout: Layout, fewest: int) -> int:
    """Count the elements of an array whose two minor dimensions are padded to tiles."""
    minor, second, *rest = (sizes[axis] for axis in layout)
    rows = 8 if second >= 8 else max(fewest, 2 ** math.ceil(math.log2(second)))
    padded = [math.ceil(minor / 128) * 128, math.ceil(second / rows) * rows, *rest]
    return math.prod(padded)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 8, 12, 64, 100, 128, 129, 256]), min_size=2, max_size=5),
    st.sampled_from([8, 4, 2]),
)
def test_no_layout_is_smaller(sizes: list[int], fewest: int) -> None:
    """The row-major layout wins ties; dimensions outside of the tiles are row-major."""
    found = choose_layout(sizes, fewest)
    layouts = itertools.permutations(range(len(sizes)))
    smallest = min(pad(sizes, layout, fewest) for layout in layouts)
    assert sorted(found) == list(range(len(sizes)))
    assert pad(sizes, found, fewest) == smallest
    row_major = tuple(range(len(sizes)))[::-1]
    assert found == row_major or pad(sizes, row_major, fewest) > smallest
    assert list(found[2:]) == sorted(found[2:], reverse=True)


@pytest.mark.parametrize(("sizes", "layout"), [
    ((8, 12, 64), (2, 0, 1)), ((2, 16, 48), (2, 1, 0)), ((96, 48), (0, 1)), ((96, 96), (1, 0)),
    ((4, 24, 24, 8), (2, 3, 1, 0)), ((3, 3, 8, 48), (3, 2, 1, 0)),
])  # fmt: skip
def test_parameters_of_a_tpu(sizes: Shape, layout: Layout) -> None:
    """The layouts that libtpu 0.0.42.1 gives to parameters of float32 on a TPU v3."""
    assert choose_layout(sizes, fewest=2) == layout


Layouts = tuple[Layout | None, ...]


def build(opcode: str, result: Shape, *operands: Shape) -> Graph:
    """A program of one operation on parameters."""
    program = Builder()
    read = [program.add("parameter", shape) for shape in operands]
    node = program.add(opcode, result, *read)
    return program.build({node: np.full((1, 18), -1)}, program.add("tuple", (), node))


def unpack_all(numbers: Sequence[int], shapes: Sequence[Shape]) -> Layouts:
    pairs = zip(numbers, shapes, strict=True)
    return tuple(None if number < 0 else unpack(int(number), len(shape)) for number, shape in pairs)


@pytest.mark.parametrize(("left", "right", "result", "layouts"), [
    ((4, 128, 48), (48, 24), (4, 128, 24), ((1, 2, 0), (1, 2, 0), (0, 1))),
    ((4, 128, 24), (24, 48), (4, 128, 48), ((1, 2, 0), (1, 2, 0), (1, 0))),
    ((8, 12, 128), (128, 64), (8, 12, 64), ((2, 1, 0), (2, 1, 0), (0, 1))),
    ((8, 16, 384), (384, 192), (8, 16, 192), ((2, 1, 0), (2, 1, 0), (0, 1))),
    ((2304, 48), (48, 16), (2304, 16), ((0, 1), None, None)),
])  # fmt: skip
def test_dots_of_a_tpu(left: Shape, right: Shape, result: Shape, layouts: Layouts) -> None:
    """The layouts of result and operands that libtpu 0.0.42.1 requests for a dot on a TPU v3.

    It requests none of the operands of a product of two matrices.
    """
    graph = build("dot", result, left, right)
    ops = Propagation(repair_padding(graph), TPU).instructions
    (found,) = np.flatnonzero((ops.node == graph.configurable[0]) & (ops.asked[:, 0] < 0))
    packed = [ops.fixed[found], *ops.wanted[ops.main[found]]]
    assert layouts == unpack_all(packed, (result, left, right))


# As the compiler's log has them: bytes of an element, sizes and layouts of operand and result.
# benchmarks.tpu_reshapes prints those that are expected otherwise.
@pytest.mark.parametrize(("width", "operand", "result", "layouts"), [
    (4, (8, 12, 64), (8, 12, 4, 16), ((2, 0, 1), (3, 2, 0, 1))),
    (4, (8, 12, 4, 16), (8, 12, 64), ((3, 2, 0, 1), (2, 0, 1))),
    (4, (4, 12, 96), (4, 12, 4, 24), ((2, 0, 1), (3, 2, 0, 1))),
    (4, (2, 16, 48), (2, 16, 4, 12), ((2, 1, 0), (3, 2, 1, 0))),
    (4, (96, 48), (4, 24, 48), ((1, 0), (2, 1, 0))),
    (4, (48, 48), (4, 12, 48), ((1, 0), (2, 1, 0))),
    (4, (4, 24, 24, 48), (2304, 48), ((3, 2, 1, 0), (1, 0))),
    # 8 x 32 x 4 x 24 pads 4 rows to 4, not to 8: so row-major is smaller than 32 minor
    (4, (8, 32, 96), (8, 32, 4, 24), ((2, 1, 0), (3, 2, 1, 0))),
    (4, (8, 32, 64), (8, 32, 4, 16), ((1, 2, 0), (1, 3, 2, 0))),
    (4, (64, 96), (2, 32, 8, 12), ((0, 1), (1, 0, 3, 2))),
    (4, (8, 8, 6, 8), (8, 48, 8), ((2, 1, 3, 0), (1, 2, 0))),
    # as large with 4 rows in a tile, but the compiler prefers 8
    (4, (8, 12, 6, 4), (8, 72, 4), ((2, 1, 0, 3), (1, 0, 2))),
    (2, (16, 8, 48), (16, 8, 12, 4), ((0, 1, 2), (0, 1, 3, 2))),
    (2, (8, 12, 4, 128), (8, 48, 128), ((3, 0, 2, 1), (2, 0, 1))),
    (2, (288, 16), (12, 24, 16), ((0, 1), (1, 0, 2))),
    (2, (2048, 1536), (16, 128, 12, 128), ((0, 1), (1, 0, 3, 2))),
    (2, (8, 8, 12, 32), (8, 96, 32), ((3, 0, 2, 1), (2, 0, 1))),
    # what the rule does not explain: its pair is 7% smaller than the compiler's
    pytest.param(
        4, (8, 24, 64), (8, 24, 4, 16), ((1, 2, 0), (1, 3, 2, 0)),
        marks=pytest.mark.xfail(
            strict=True, raises=AssertionError, reason="the compiler's pair is not the smallest"
        ),
    ),
])  # fmt: skip
def test_reshapes_of_a_tpu(width: int, operand: Shape, result: Shape, layouts: Layouts) -> None:
    """The layouts that the compiler of a TPU v3 requests for a reshape that moves data."""
    graph = build("reshape", result, operand)
    features = graph.node_features.copy()
    (kinds,) = np.nonzero(width == ELEMENT_BYTES)
    features[:, ELEMENT_TYPE] = np.eye(len(ELEMENT_BYTES))[kinds[0]]
    graph = dataclasses.replace(graph, node_features=features)
    found = DeviceLayouts(repair_padding(graph)).choose_reshape(0, 1)
    assert layouts == unpack_all(found, (operand, result))


NAMES = [feature.name for feature in list_state_features("tpu")]
SHAPES = [(48,), (200,), (3000,), (5, 130), (130, 5), (1, 300), (300, 1), (7, 3), (2, 3, 4),
          (16, 9, 300), (9, 16, 1), (3, 200, 12, 2)]  # fmt: skip
TYPES = {"f32": 4, "bf16": 2, "s8": 1, "s4": 1, "u4": 1}  # bytes of an element in a v3's memory


def pack(layout: tuple[int, ...]) -> int:
    return sum(axis << 3 * slot for slot, axis in enumerate(layout))


def count_one(shape: tuple[int, ...], layout: tuple[int, ...] | None, width: int) -> float:
    sizes = np.array([[*shape, *[1] * (MAX_RANK - len(shape))]])
    number = np.array([-1 if layout is None else pack(layout)])
    return float(count_padded_bytes(number, sizes, np.array([len(shape)]), np.array([width]))[0])


@given(st.lists(st.integers(1, 300), max_size=5), st.sampled_from([*LEAST_ROWS]), st.randoms())
def test_bytes_are_those_of_whole_tiles(sizes: list[int], width: int, random: object) -> None:
    shape = tuple(sizes)
    layout = tuple(random.sample(range(len(shape)), len(shape)))  # type: ignore[attr-defined]
    assert count_one(shape, layout, width) == pad_slowly(shape, layout, width)
    row_major = tuple(range(len(shape)))[::-1]
    assert count_one(shape, None, width) == count_one(shape, row_major, width)


def test_the_order_of_a_tall_matrix_decides_its_bytes() -> None:
    assert count_one((1024, 8), (1, 0), 4) == 1024 * 128 * 4
    assert count_one((1024, 8), (0, 1), 4) == 1024 * 8 * 4
    sizes, rank = np.array([[192, 8, 1, 1, 1, 1]]), np.array([2])
    shares = [share_matrix_unit(np.array([pack(one)]), sizes, rank) for one in ((0, 1), (1, 0))]
    assert np.concatenate(shares) == pytest.approx([192 / 256, 8 / 128])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_table_counts_padding_of_every_state(seed: int) -> None:
    """Bytes of each tensor in its layout; a copy moves the mean of what it reads and writes."""
    graph = draw_graph(seed)
    ops, table = Propagation(graph, TPU).instructions, state_tables("tpu")(graph)
    assert table.features.shape[1] == len(NAMES)
    shapes = {int(node): tuple(ops.sizes[op, : ops.rank[op]].tolist())
              for op, node in enumerate(ops.node) if node >= 0}  # fmt: skip
    is_made = table.is_made
    totals = []
    for state, layouts in enumerate(table.layouts.tolist()):
        if not is_made[state] and not layouts[COPY]:
            continue
        used = [MADE, FIRST, SECOND] if layouts[SECOND] >= 0 else [MADE, FIRST]
        expected = []
        for column in used:
            node = int(table.tensors[state, column])
            if node == graph.num_nodes:
                expected.append(1)  # the reader of the results, which has no tensor
                continue
            number = layouts[column]
            if number < 0 and node == table.tensors[state, MADE]:
                number = layouts[MADE]
            shape = shapes[node]
            layout = tuple(range(len(shape)))[::-1] if number < 0 else unpack(number, len(shape))
            expected.append(pad_slowly(shape, layout, 4))
        assert table.tensor_bytes[state, used].tolist() == expected
        moved = sum(expected) if is_made[state] else sum(expected) / 2
        totals.append(moved / table.shares[state, BYTES])
        nodes = table.tensors[state, used].tolist()
        plain = [4 * math.prod(shapes.get(int(node), (0.25,))) for node in nodes]
        counts = [1.0] * len(used) if is_made[state] else [0.5] * len(used)
        counts[0] *= WRITTEN if is_made[state] and nodes[0] in graph.configurable else 1
        added = np.subtract(expected, plain) @ counts
        assert table.padding[state] * totals[0] == pytest.approx(added, rel=1e-4)
        row = dict(zip(NAMES, table.features[state].tolist(), strict=True))
        assert row["state_made_bytes"] == pytest.approx(math.log2(1 + expected[0]), rel=1e-5)
    assume(totals)  # a graph may have neither an instruction that pads nor a copy
    assert np.allclose(totals, totals[:1] * len(totals), rtol=1e-5)
    # a copy of no bytes costs as much as one of STARTED bytes, in a program without loops
    is_use = table.is_copied & ~is_made
    costs = weigh_states(graph, table).copying - table.shares[:, BYTES]
    assert costs[is_use] * totals[0] == pytest.approx(STARTED, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_what_others_request_costs_a_configuration_nothing(seed: int) -> None:
    graph = draw_graph(seed)
    alone = dataclasses.replace(graph, configs=encode(graph.layouts.expand()[:2]))
    costs = [add_known_costs(each, "tpu")[:2] for each in (graph, alone)]
    assert np.diff(costs[0]) == pytest.approx(np.diff(costs[1]))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_a_cpu_pads_nothing(seed: int) -> None:
    graph = draw_graph(seed)
    table = state_tables("cpu")(graph)
    size = np.append(num_bytes(graph), 0)
    np.testing.assert_array_equal(table.tensor_bytes, size[table.tensors])
    assert not table.padding.any()
    assert table.features.shape[1] == len(FEATURES)


def test_the_compiler_pads_as_many_bytes(tmp_path: Path) -> None:
    """Parameters of all shapes and types, each in one random order of its dimensions."""
    pytest.importorskip("libtpu", reason="the extra `tpu` is not installed: no TPU's compiler")
    from solution.collecting.target import parse_target
    from solution.collecting.tpu.estimator import Estimator

    random, orders, lines = np.random.default_rng(0), [], []
    for name, width in TYPES.items():
        for shape in SHAPES:
            order = tuple(random.permutation(len(shape)).tolist())
            orders.append((shape, order, width))
            sizes, layout = (",".join(map(str, one)) for one in (shape, order))
            lines.append(f"{name}[{sizes}]{{{layout}}}")
    places = range(len(lines))
    text = "\n".join([
        "HloModule padded", "ENTRY main {",
        *(f"  p{k} = {lines[k]} parameter({k})" for k in places),
        *(f"  n{k} = {lines[k]} negate(p{k})" for k in places),
        f"  ROOT all = ({', '.join(lines)}) tuple({', '.join(f'n{k}' for k in places)})", "}", "",
    ])  # fmt: skip
    layouts = tuple(line[line.index("{") :] for line in lines)
    with Estimator(parse_target("tpu:v3"), cache=tmp_path) as estimator:
        answer = estimator.estimate(Compiler().parse_hlo(text), layouts=(layouts, layouts))
    assert answer.compiled is not None, answer.refused
    found = {
        tensor.source: tensor
        for tensor in answer.compiled.tensors
        if tensor.opcode == "parameter" and not tensor.is_fused
    }
    for place, (shape, order, width) in enumerate(orders):
        tensor = found[f"p{place}"]
        assert tensor.minor_to_major == order
        sizes = [shape[axis] for axis in order]
        tile = tensor.tiles[0][::-1] if tensor.tiles else ()
        padded = [-(-size // by) * by for size, by in zip(sizes, tile, strict=False)]
        stored = math.prod([*padded, *sizes[len(padded) :]]) * width
        assert count_one(shape, order, width) == stored, tensor.shape
