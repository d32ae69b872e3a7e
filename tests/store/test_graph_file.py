"""The file of a prepared graph: what was written comes back, and nothing else passes for it."""

import dataclasses
import gc
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from solution.domain.codebook import Codebook, encode
from solution.domain.graph import Budget, Graph, PerGraph
from solution.models.base import RankerSettings
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.store.graph_file import GraphCache, read_prepared, read_record, write_prepared
from solution.system.errors import InputError
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, make_wide_graph

RECORD = {"source": "0123456789abcdef", "summary": {"nodes": 8, "spread": None}}
NOTHING_TO_SET = {"configurable": np.empty(0, np.int64), "configs": encode(np.empty((12, 0, 18)))}
GRAPHS = {
    "layout": make_layout_graph(),
    "layout without labels": make_layout_graph(labelled=False),
    "no configurable nodes": dataclasses.replace(make_layout_graph(), **NOTHING_TO_SET),
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
    # The safetensors library sees the same.
    is_tile = graph.collection.kind == "tile"
    configs = {"tiles": graph.configs} if is_tile else graph.layouts.arrays()
    fields = ("node_features", "node_opcodes", "edges", "configurable")
    arrays = load_file(path)
    for name, array in (configs | {name: getattr(graph, name) for name in fields}).items():
        np.testing.assert_array_equal(arrays[name], array)
    assert ("runtimes" in arrays) == (graph.runtimes is not None)
    with safe_open(path, "numpy") as file:
        assert json.loads(file.metadata()["record"])["source"] == RECORD["source"]


def test_many_codes_are_mapped_and_take_no_memory(tmp_path: Path) -> None:
    graph = make_wide_graph()
    read = read_prepared(write(tmp_path, graph))
    codes = read.layouts.codes
    assert type(codes) is np.ndarray and isinstance(codes.base, np.memmap)
    assert 0 < read.nbytes <= graph.nbytes - codes.nbytes and codes.nbytes > 1 << 20
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
    write(tmp_path, make_layout_graph())
    assert find_difference(read, graph) is None
    path.unlink()
    assert find_difference(read, graph) is None


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 100, 0.3, 0.6, 0.95, -1])
def test_a_truncated_file_is_refused(kept: float, tmp_path: Path) -> None:
    for graph in (make_layout_graph(), make_wide_graph()):
        path = write(tmp_path, graph)
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content)) if 0 < kept < 1 else int(kept)])
        assert "data again." in refusal(path)
        with pytest.raises(InputError):
            read_record(path)


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


@pytest.mark.parametrize("graph", [GRAPHS["layout"], GRAPHS["tile"]], ids=["layout", "tile"])
def test_any_flipped_byte_of_the_header_is_refused(graph: Graph, tmp_path: Path) -> None:
    path = write(tmp_path, graph)
    content = path.read_bytes()
    generator = random.Random(0)
    for position in range(0, 8 + int.from_bytes(content[:8], "little"), 3):
        damaged = bytearray(content)
        damaged[position] ^= generator.randrange(1, 256)
        path.write_bytes(damaged)
        refusal(path)
    path.write_bytes(content)
    assert find_difference(read_prepared(path), graph) is None


CONFIGS, NODES = 1000, 20
EPOCHS, SAMPLED, VALIDATION, MAX_CONFIGS = 2, 48, 200, 300
TRAINING = TrainingSettings(
    epochs=EPOCHS, configs_per_graph=SAMPLED, max_configs=None, validation_configs=VALIDATION
)


class WatchedCodes(np.ndarray):
    """Codes that count the rows that are taken out of them, and refuse to be read as a whole."""

    rows_read = 0

    def __getitem__(self, key: Any) -> Any:
        taken = np.asarray(self)[key]
        type(self).rows_read += len(taken)
        return taken

    def __array_function__(self, function: Any, *rest: Any) -> Any:
        raise AssertionError(f"{function} reads all codes")

    def __array_ufunc__(self, function: Any, method: Any, *rest: Any, **options: Any) -> Any:
        raise AssertionError(f"{function} reads all codes")


def watch(graph: Graph) -> Graph:
    book = graph.layouts
    watched = Codebook(book.layouts, book.starts, book.codes.view(WatchedCodes), book.rows)
    return dataclasses.replace(graph, configs=watched)


NET = LayoutGnnSettings(width=8, rounds=(8,), training=TRAINING)
TREES = LightGBMSettings(rounds=5, max_configs=MAX_CONFIGS)


# A net reads all codes once, to count how frequent each is; then what is sampled.
@pytest.mark.parametrize(
    ("settings", "expected"),
    [(NET, CONFIGS + EPOCHS * SAMPLED + 2 * VALIDATION), (TREES, 2 * MAX_CONFIGS)],
)
def test_training_reads_only_the_configurations_that_it_learns_from(
    settings: RankerSettings, expected: int, tmp_path: Path
) -> None:
    """One graph to learn from, the same to stop early on, of many configurations."""
    graph = watch(read_prepared(write(tmp_path, make_wide_graph(CONFIGS, NODES))))
    WatchedCodes.rows_read = 0
    ranker = settings.build(seed=0).fit([graph], [graph])
    assert 0 < WatchedCodes.rows_read <= expected
    asked = graph.select(np.arange(0, CONFIGS, 20))
    assert WatchedCodes.rows_read <= expected + CONFIGS // 20
    assert np.isfinite(ranker.predict(asked)).all()
    assert WatchedCodes.rows_read <= expected + CONFIGS // 20


def test_a_mapped_graph_predicts_the_same_as_one_in_memory(tmp_path: Path) -> None:
    graph = make_wide_graph(18_000, 60)
    path = write(tmp_path, graph)
    ranker = TREES.build(0).fit([make_wide_graph(500, 60)], [])
    np.testing.assert_array_equal(ranker.predict(read_prepared(path)), ranker.predict(graph))


def test_graphs_are_kept_while_they_fit(tmp_path: Path) -> None:
    paths = [tmp_path / f"{seed}.safetensors" for seed in range(4)]
    for seed, path in enumerate(paths):
        write_prepared(make_layout_graph(seed, 40, name=f"g{seed}"), {}, path)
    size = read_prepared(paths[0]).nbytes
    for budget, kept in ((0, 0), (size, 1), (10 * size, 4)):
        cache = GraphCache(budget)
        first, second = ([cache.read(path) for path in paths] for _ in range(2))
        assert sum(a is b for a, b in zip(first, second, strict=True)) == kept
        assert all(find_difference(a, b) is None for a, b in zip(first, second, strict=True))


def test_results_of_a_graph_are_kept_as_long_as_the_graph_and_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def compute(graph: Graph) -> np.ndarray:
        calls.append(graph.name)
        return np.zeros(100)

    monkeypatch.setattr(PerGraph, "budget", Budget(1000))
    function = PerGraph(compute)
    first, second = make_tile_graph(0, name="first"), make_tile_graph(1, name="second")
    assert function(first) is function(first)
    assert function(second) is not function(second)  # 800 of 1000 bytes are taken
    assert calls == ["first", "second", "second"]
    del first
    gc.collect()
    assert function(second) is function(second)
    assert calls == ["first", "second", "second", "second"]
