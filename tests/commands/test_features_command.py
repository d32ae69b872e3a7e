"""Every column has a name, a unit and a reason, and the table can be written as a file."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.features.columns import FEATURES
from solution.features.table import feature_table
from tests.conftest import FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_the_catalogue_is_the_table(kind: str) -> None:
    table = feature_table(make_layout_graph() if kind == "layout" else make_tile_graph())
    assert table.columns == [feature.name for feature in FEATURES[kind]]
    for feature in FEATURES[kind]:
        assert feature.unit
        assert feature.reason
        assert "\n" not in feature.reason


def test_all_features_are_listed(fastslow: FastSlow) -> None:
    result = fastslow("features")
    assert result.returncode == 0, result.stderr
    printed = {line.split(" ")[0] for line in result.stdout.splitlines()}
    for features in FEATURES.values():
        assert {feature.name for feature in features} <= printed


def test_a_table_is_written_with_its_names_and_runtimes(fastslow: FastSlow, tmp_path: Path) -> None:
    graphs = [make_tile_graph(seed, name=f"kernel_{seed}") for seed in range(3)]
    for graph in graphs:
        write_graph(graph, tmp_path / "data")
    result = fastslow("features", "tile:xla", "--data", "data", "--out", "table.parquet")
    assert result.returncode == 0, result.stderr
    table = pl.read_parquet(tmp_path / "table.parquet")
    assert len(table) == sum(graph.num_configs for graph in graphs)
    own = table.filter(pl.col("graph") == "kernel_1")
    assert own["config"].to_list() == list(range(graphs[1].num_configs))
    expected = feature_table(graphs[1])
    np.testing.assert_allclose(own.select(expected.columns), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own["runtime"], graphs[1].runtimes, rtol=1e-5)


def test_a_word_to_find_is_of_the_list(fastslow: FastSlow, tmp_path: Path) -> None:
    result = fastslow("features", "tile:xla", "--find", "bytes", "--out", "t.parquet")
    assert result.returncode == 2
    assert "--find" in result.stderr
    assert not (tmp_path / "t.parquet").exists()


def test_a_table_of_a_collection_that_is_not_there_is_refused(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    write_graph(make_tile_graph(), tmp_path / "data")
    result = fastslow("features", "layout:nlp:random", "--data", "data", "--out", "t.parquet")
    assert result.returncode == 2
    assert all(fact in result.stderr for fact in ("data", "layout:nlp:random", "tile:xla"))
    assert not (tmp_path / "t.parquet").exists()
    assert not (tmp_path / "stores").exists()  # said before anything is prepared
