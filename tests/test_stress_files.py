"""The files at the competition's bounds are what their names say, and the pipeline takes them."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpus import FACTS, write_corpus
from benchmarks.programs import draw_candidates, draw_configs, make_program
from benchmarks.stress import FILES, write_stress_files
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from tests.conftest import FastSlow


def read(folder: Path, name: str) -> Graph:
    (path,) = write_stress_files(folder, name)
    (file,) = find_files(path)
    return read_graph(path, file.collection)


def test_twenty_identical_configurations(tmp_path: Path) -> None:
    graph = read(tmp_path, "all_identical")
    assert (graph.num_configs, len(graph.distinct.first)) == (20, 1)
    assert graph.runtimes is not None
    assert len(np.unique(graph.runtimes)) > 1


def test_isolated_nodes_and_ties(tmp_path: Path) -> None:
    graph = read(tmp_path, "isolated_nodes")
    assert graph.num_nodes - len(np.unique(graph.edges)) == 60
    assert graph.runtimes is not None
    assert len(np.unique(graph.runtimes)) < graph.num_configs


def test_a_tile_graph_of_two_nodes(tmp_path: Path) -> None:
    assert read(tmp_path, "tiny_tile").num_nodes == 2


def test_test_graphs_have_no_labels(tmp_path: Path) -> None:
    graph = read(tmp_path, "usual_1")
    assert (graph.num_configs, graph.runtimes) == (1_000, None)


def test_the_largest_program_has_the_sizes_of_the_real_one() -> None:
    program = make_program(1, 43_615, 73_881, 2_244)
    assert program.features.shape == (43_615, 140)
    assert program.edges.shape == (73_881, 2)
    assert (program.edges[:, 0] > program.edges[:, 1]).all()
    assert len(np.unique(program.configurable)) == 2_244
    chosen = draw_configs(3, draw_candidates(2, program), 100, distinct=48)
    assert len(np.unique(chosen, axis=0)) == 48


def test_an_unknown_name_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no nothing"):
        write_stress_files(tmp_path, "nothing")
    assert not list(tmp_path.iterdir())
    assert len({Path(name).stem for name in FILES}) == len(FILES)


@pytest.mark.parametrize("name", FACTS)
def test_an_imitation_is_sound_and_of_the_size_that_was_asked_for(
    name: str, tmp_path: Path, fastslow: FastSlow
) -> None:
    paths = write_corpus(tmp_path / "data", name, graphs=0.005, configs=0.002)
    expected = [max(1, round(0.005 * count)) for count in FACTS[name].graphs]
    found = [file.split for file in find_files(tmp_path / "data")]
    assert [found.count(split) for split in ("train", "valid", "test")] == expected
    assert len(paths) == sum(expected)
    result = fastslow("check", tmp_path / "data")
    assert result.returncode == 0, result.stderr
