"""What was learned from a compiler's estimates says so: run, store, page, bundle, card, ranking."""

import dataclasses
from pathlib import Path

import pytest

from ensembles.merge import describe_caveats
from ensembles.recipe import Recipe
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.graph import InvalidGraphError
from solution.domain.labels import TIMED, is_source, name_estimate, warn_of_estimates
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.linear import RidgeSettings
from solution.runs.folder import Run
from solution.serving.bundle import load_bundle
from solution.serving.packing import pack
from solution.store.graph_file import read_prepared
from solution.store.preparing import prepare_store
from solution.system.errors import InputError
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from tests.conftest import FastSlow
from tests.made.graphs import make_layout_graph, write_graph

LAYOUT = "layout:xla:random"
SOURCE = name_estimate("tpu:v3", "libtpu 0.0.42.1")
RIDGE = Experiment("ridge", (LAYOUT,), RidgeSettings(max_configs=6, grid=(1.0,)))


def write_data(folder: Path, sources: list[str]) -> Path:
    for seed, source in enumerate(sources):
        graph = make_layout_graph(seed, name=f"p{seed}")
        write_graph(dataclasses.replace(graph, label_source=source), folder)
    return folder


def train(data: Path, folder: Path, *, mixes: bool = False) -> Run:
    store = prepare_store(find_files(data), folder / "store", Preparation())
    opened = open_experiments([RIDGE], store, folder / "run", scheme="graph", folds=3, mixes=mixes)
    with opened as (plan, run):
        run_experiments([RIDGE], plan, run)
    return run


def test_a_source_goes_from_the_file_through_the_store_to_the_ranking(tmp_path: Path) -> None:
    run = train(write_data(tmp_path / "data", [SOURCE] * 6), tmp_path)
    (file, *_) = find_files(tmp_path / "data")
    assert read_graph(file.path, file.collection).label_source == SOURCE
    prepared = next((tmp_path / "store").rglob("p0.safetensors"))
    assert read_prepared(prepared).label_source == SOURCE
    assert run.label_sources() == [SOURCE]
    recipe = Recipe(name="ridge", members={"ridge": 1.0})
    assert any("tpu:v3" in words for words in describe_caveats(run, recipe))
    bundle = load_bundle(pack(run, recipe, tmp_path / "bundle"))
    assert bundle.record.label_sources == (SOURCE,)
    assert "tpu:v3, libtpu 0.0.42.1" in (tmp_path / "bundle/README.md").read_text()
    ranking = bundle.rank(make_layout_graph(9, name="asked"))
    assert "tpu:v3" in ranking.sentence() and "estimate" in bundle.describe()


def test_timed_and_estimated_labels_are_mixed_only_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    data = write_data(tmp_path / "data", [SOURCE, TIMED] * 3)
    with pytest.raises(InputError, match="--mix-labels") as refused:
        train(data, tmp_path)
    assert "3 timed" in str(refused.value) and f"3 {SOURCE}" in str(refused.value)
    assert train(data, tmp_path, mixes=True).label_sources() == [TIMED, SOURCE]


def test_the_commands_say_it(fastslow: FastSlow, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [SOURCE, TIMED] * 3)
    checked = fastslow("check", data)
    assert checked.returncode == 0
    assert "Some labels" in " ".join(checked.stdout.split())
    refused = fastslow("run", data, "--run", tmp_path / "run", "--limit")
    assert refused.returncode == 2
    assert "--mix-labels" in refused.stderr and "tpu:v3" in refused.stderr


@pytest.mark.parametrize(
    "source", ["measured", "estimated: ", "estimated: a\nb", "estimated: \x1b[1m"]
)
def test_a_source_that_is_none_is_no_graph(source: str) -> None:
    assert not is_source(source)
    with pytest.raises(InvalidGraphError, match="source of its labels"):
        dataclasses.replace(make_layout_graph(), label_source=source)


def test_timed_labels_need_no_warning() -> None:
    assert warn_of_estimates([TIMED, TIMED]) == ""
    assert "Some labels" in warn_of_estimates([TIMED, SOURCE])
