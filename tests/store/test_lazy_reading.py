"""Of a large prepared graph, only what is asked for is read and kept."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution.domain.codebook import Codebook
from solution.domain.graph import Graph
from solution.domain.memo import Budget, PerGraph, count_bytes
from solution.models.base import RankerSettings
from solution.models.layout.layout_gnn import LayoutGnnSettings, prepare
from solution.models.nets.training_settings import TrainingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.store.graph_file import read_prepared, write_prepared
from solution.store.lazy_graphs import GraphCache, LazyGraphs
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, make_wide_graph

CONFIGS = 20_000
EPOCHS, SAMPLED, VALIDATION, MAX_CONFIGS = 4, 48, 200, 300
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
    fields = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    return Graph(**{**fields, "configs": watched})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # All codes once, to count how frequent each is; then what is sampled.
        (
            LayoutGnnSettings(width=8, rounds=(8,), training=TRAINING),
            CONFIGS + EPOCHS * SAMPLED + 2 * VALIDATION,
        ),
        (LightGBMSettings(rounds=5, max_configs=MAX_CONFIGS), 2 * MAX_CONFIGS),
    ],
    ids=["layout net", "layout LightGBM"],
)
def test_training_reads_only_the_configurations_that_it_learns_from(
    settings: RankerSettings, expected: int, tmp_path: Path
) -> None:
    """One graph to learn from, the same to stop early on, of 20,000 configurations."""
    path = tmp_path / "wide.safetensors"
    write_prepared(make_wide_graph(CONFIGS, 60), {}, path)
    graph = watch(read_prepared(path))
    WatchedCodes.rows_read = 0
    ranker = settings.build(seed=0).fit([graph], [graph])
    assert 0 < WatchedCodes.rows_read <= expected
    asked = graph.select(np.arange(0, CONFIGS, 20))
    assert WatchedCodes.rows_read <= expected + CONFIGS // 20
    assert np.isfinite(ranker.predict(asked)).all()
    assert WatchedCodes.rows_read <= expected + CONFIGS // 20


def test_a_mapped_graph_predicts_the_same_as_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "wide.safetensors"
    graph = make_wide_graph(18_000, 60)
    write_prepared(graph, {}, path)
    settings = LightGBMSettings(rounds=5, max_configs=100)
    ranker = settings.build(0).fit([make_wide_graph(500, 60)], [])
    np.testing.assert_array_equal(ranker.predict(read_prepared(path)), ranker.predict(graph))


def test_mapped_codes_count_as_no_bytes_in_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "wide.safetensors"
    graph = make_wide_graph()
    write_prepared(graph, {}, path)
    codes = graph.layouts.codes.nbytes
    mapped = count_bytes(prepare(read_prepared(path), "neighbourhood", 1))
    assert 0 < mapped <= count_bytes(prepare(graph, "neighbourhood", 1)) - codes


def write_some(folder: Path) -> list[Path]:
    graphs = [make_layout_graph(seed, 40, name=f"g{seed}") for seed in range(4)]
    paths = [folder / f"{graph.name}.safetensors" for graph in graphs]
    for graph, path in zip(graphs, paths, strict=True):
        write_prepared(graph, {}, path)
    return paths


def test_graphs_are_kept_while_they_fit(tmp_path: Path) -> None:
    paths = write_some(tmp_path)
    size = read_prepared(paths[0]).nbytes
    for budget, kept in ((0, 0), (size, 1), (10 * size, 4)):
        cache = GraphCache(budget)
        first, second = ([cache.read(path) for path in paths] for _ in range(2))
        assert sum(a is b for a, b in zip(first, second, strict=True)) == kept
        assert all(find_difference(a, b) is None for a, b in zip(first, second, strict=True))


def test_lazy_graphs_are_a_sequence(tmp_path: Path) -> None:
    graphs = LazyGraphs(write_some(tmp_path), GraphCache())
    assert len(graphs) == 4
    assert [graph.name for graph in graphs] == ["g0", "g1", "g2", "g3"]
    assert graphs[-1].name == "g3"
    assert [graph.name for graph in graphs[1:3]] == ["g1", "g2"]
    with pytest.raises(IndexError):
        graphs[4]


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
