"""Bytes with padding to a TPU's register tiles: counted element by element, and by its compiler."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.vocabulary import MAX_RANK
from solution.features.operations import num_bytes
from solution.features.propagation.backend import TPU
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.register_tiles import count_padded_bytes, share_matrix_unit
from solution.features.propagation.state_table import (
    BYTES,
    FEATURES,
    list_state_features,
    state_tables,
)
from solution.features.propagation.states import COPY, FIRST, MADE, SECOND
from solution.models.layout.known_costs import STARTED, find_made, weigh_states
from solution.programs.compiler import Compiler
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.slow import LEAST_ROWS, pad_slowly, unpack

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
    shares = [
        share_matrix_unit(np.array([pack(layout)]), np.array([[192, 8, 1, 1, 1, 1]]), np.array([2]))
        for layout in ((0, 1), (1, 0))
    ]
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
    is_made = find_made(table)
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
        row = dict(zip(NAMES, table.features[state].tolist(), strict=True))
        assert row["state_made_bytes"] == pytest.approx(math.log2(1 + expected[0]), rel=1e-5)
    assert np.allclose(totals, totals[:1] * len(totals), rtol=1e-5)
    assert (table.padding >= 0).all()
    # a copy of no bytes costs as much as one of STARTED bytes, in a program without loops
    is_use = table.is_copied & ~is_made
    costs = weigh_states(graph, table).copying - table.shares[:, BYTES]
    assert costs[is_use] * totals[0] == pytest.approx(STARTED, rel=1e-3)


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
