"""The file of a prepared graph: what was written comes back, and nothing else passes for it."""

import dataclasses
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.store.graph_file import read_prepared, read_record, write_prepared
from solution.system.errors import InputError
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, make_wide_graph

RECORD = {"source": "0123456789abcdef", "summary": {"nodes": 8, "spread": None}}
GRAPHS = {
    "layout": make_layout_graph(),
    "layout without labels": make_layout_graph(labelled=False),
    "no configurable nodes": dataclasses.replace(
        make_layout_graph(),
        configurable=np.empty(0, np.int64),
        configs=encode(np.empty((12, 0, 18))),
    ),
    "no edges": dataclasses.replace(make_layout_graph(), edges=np.empty((0, 2), np.int64)),
    "repeated": make_layout_graph().select(np.array([3, 3, 0, 3])),
    "one configuration": make_layout_graph(configs=1),
    "strange name": make_layout_graph(name='a "b"\\ \\"header\\": \\"0 ü [red]'),
    "tile": make_tile_graph(),
    "tile without labels": make_tile_graph(labelled=False),
}


def write(folder: Path, graph: Graph) -> Path:
    path = folder / "graph.safetensors"
    write_prepared(graph, RECORD, path)
    return path


def header_size(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def refusal(path: Path) -> str:
    """The message, which names the file."""
    with pytest.raises(InputError, match=re.escape(str(path))) as caught:
        read_prepared(path)
    return str(caught.value)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_graph_comes_back_as_it_was_written(graph: Graph, tmp_path: Path) -> None:
    path = write(tmp_path, graph)
    read = read_prepared(path)
    assert find_difference(read, graph) is None
    if graph.collection.kind == "layout":
        for name, array in graph.layouts.arrays().items():
            np.testing.assert_array_equal(read.layouts.arrays()[name], array)
    record = read_record(path)
    assert {name: record[name] for name in RECORD} == RECORD
    assert (record["collection"], record["name"]) == graph.key


@given(st.integers(0, 1000), st.integers(1, 40), st.booleans(), st.booleans())
@settings(max_examples=20, deadline=None)
def test_random_graphs_come_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, configs: int, labelled: bool, tile: bool
) -> None:
    make = make_tile_graph if tile else make_layout_graph
    graph = make(seed, configs, labelled=labelled)
    assert find_difference(read_prepared(write(tmp_path_factory.mktemp("g"), graph)), graph) is None


def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    contents = set()
    for graph in (
        make_layout_graph(4),
        make_layout_graph(4),
        make_layout_graph(4).select(np.arange(12)),
    ):
        contents.add(write(tmp_path, graph).read_bytes())
    assert len(contents) == 1
    assert write(tmp_path, make_layout_graph(5)).read_bytes() not in contents
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.safetensors"]


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_safetensors_library_sees_the_same_arrays(graph: Graph, tmp_path: Path) -> None:
    path = write(tmp_path, graph)
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["node_features"], graph.node_features)
    np.testing.assert_array_equal(arrays["node_opcodes"], graph.node_opcodes)
    np.testing.assert_array_equal(arrays["edges"], graph.edges)
    np.testing.assert_array_equal(arrays["configurable"], graph.configurable)
    assert ("runtimes" in arrays) == (graph.runtimes is not None)
    if graph.collection.kind == "tile":
        np.testing.assert_array_equal(arrays["tiles"], graph.tiles)
    else:
        for name, array in graph.layouts.arrays().items():
            np.testing.assert_array_equal(arrays[name], array)
    with safe_open(path, "numpy") as file:
        assert json.loads(file.metadata()["record"])["source"] == RECORD["source"]


def test_many_codes_are_mapped_and_take_no_memory(tmp_path: Path) -> None:
    graph = make_wide_graph()
    read = read_prepared(write(tmp_path, graph))
    codes = read.layouts.codes
    assert type(codes) is np.ndarray
    assert isinstance(codes.base, np.memmap)
    assert 0 < read.nbytes <= graph.nbytes - codes.nbytes
    assert codes.nbytes > 1 << 20
    assert find_difference(read, graph) is None
    with pytest.raises(ValueError, match="read-only"):
        codes[0] = 0
    assert read.select(np.arange(20_000)).layouts.codes is codes
    few = read.select(np.arange(100))
    assert not isinstance(few.layouts.codes.base, np.memmap)
    np.testing.assert_array_equal(few.layouts.expand(), graph.layouts.expand()[:100])


def test_a_mapped_graph_outlives_its_file(tmp_path: Path) -> None:
    """A store may be replaced while somebody still reads the old one."""
    graph = make_wide_graph()
    path = write(tmp_path, graph)
    read = read_prepared(path)
    write_prepared(make_layout_graph(), RECORD, path)
    assert find_difference(read, graph) is None
    path.unlink()
    assert find_difference(read, graph) is None


def test_few_codes_are_read_and_no_file_stays_open(tmp_path: Path) -> None:
    graph = read_prepared(write(tmp_path, make_layout_graph()))
    assert not any(isinstance(a.base, np.memmap) for a in graph.layouts.arrays().values())
    assert graph.nbytes > 0


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 100, 0.3, 0.6, 0.95, -1])
def test_a_truncated_file_is_refused(kept: float, tmp_path: Path) -> None:
    for graph in (make_layout_graph(), make_wide_graph()):
        path = write(tmp_path, graph)
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
        assert "Prepare the data again." in refusal(path)
        with pytest.raises(InputError):
            read_record(path)


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, make_layout_graph())
    path.write_bytes(path.read_bytes() + b"\0")
    assert "bytes, expected" in refusal(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "graph.safetensors")


GARBAGE = {
    "zeros": bytes(1000),
    "text": b"This is not a prepared graph. " * 50,
    "noise": random.Random(0).randbytes(5000),
    "zip": b"PK\x03\x04" + bytes(500),
    "huge header": (2**63).to_bytes(8, "little") + bytes(100),
} | {
    f"header {text}": len(text).to_bytes(8, "little") + text.encode()
    for text in (
        "", "{}", "[]", "7", "null", '"x"', '{"a": 1}', '{"__metadata__": {}}',
        '{"__metadata__": {"record": "{}"}}', '{"__metadata__": {"record": "[]"}}',
        '{"__metadata__": {"record": 5}}', '{"__metadata__": 7, "a": {"data_offsets": []}}',
        '{"__metadata__": {"record": "{\\"header\\": \\"0\\"}"}, "a": {"data_offsets": []}}',
        '{"__metadata__": {"record": "{\\"header\\": 0}"}, "a": {"data_offsets": [0, 0]}}',
        '{"__metadata__": {"record": "{\\"header\\": \\"0\\"}"}, "a": {"data_offsets": [0, 0]}}',
    )
}  # fmt: skip


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "graph.safetensors"
    path.write_bytes(content)
    refusal(path)
    with pytest.raises(InputError, match=re.escape(str(path))):
        read_record(path)


@pytest.mark.parametrize("metadata", [None, {"record": "{}"}, {"format": "pt"}])
def test_a_foreign_safetensors_file_is_refused(
    metadata: dict[str, str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "graph.safetensors"
    save_file({"weight": np.zeros((3, 4), np.float32)}, path, metadata)
    refusal(path)


@pytest.mark.parametrize("graph", [GRAPHS["layout"], GRAPHS["tile"]], ids=["layout", "tile"])
def test_any_flipped_byte_of_the_header_is_refused(graph: Graph, tmp_path: Path) -> None:
    path = write(tmp_path, graph)
    content = path.read_bytes()
    generator = random.Random(0)
    for place in range(header_size(content)):
        damaged = bytearray(content)
        damaged[place] ^= generator.randrange(1, 256)
        path.write_bytes(damaged)
        refusal(path)
    path.write_bytes(content)
    assert find_difference(read_prepared(path), graph) is None


def test_flipped_bits_of_the_record_are_refused(tmp_path: Path) -> None:
    """Where most flips give other sound JSON: another name, another number."""
    path = write(tmp_path, GRAPHS["layout"])
    content = path.read_bytes()
    record = content.index(b"record")
    for place in range(record, content.index(b"}", record)):
        for bit in (place % 8, (place + 3) % 8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(InputError):
                read_record(path)


@pytest.mark.parametrize("graph", [GRAPHS["layout"], GRAPHS["tile"]], ids=["layout", "tile"])
def test_a_flipped_byte_of_the_arrays_is_a_graph_or_a_message(graph: Graph, tmp_path: Path) -> None:
    """Not looked for at every start, `fastslow check` does; but nothing else may be raised."""
    path = write(tmp_path, graph)
    content = path.read_bytes()
    generator = random.Random(1)
    for place in range(header_size(content), len(content), 19):
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        try:
            read_prepared(path)
        except InputError as error:
            assert str(path) in str(error)
