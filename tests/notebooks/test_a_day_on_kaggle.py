"""A user pushes, waits, and gets models, predictions and a CSV back, without editing a cell."""

import polars as pl
import pytest

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import find_recipe
from solution import read_graph
from solution.data.folders import SAMPLE, find_files
from solution.domain import predictions
from solution.experiments.base import find_experiment
from solution.runs.folder import Run
from solution.serving.bundle import load_bundle
from solution.sessions.record import read_session_record
from submissions.kernels.installing import MANIFEST
from submissions.kernels.notebooks import list_notebooks
from submissions.writer import Expected, check_submission, expect, read_rows
from tests.notebooks.conftest import LAST, MEASURING, TRAINING, WHEELS, Day
from tests.notebooks.sandbox import choose_files, read_text


@pytest.mark.parametrize("name", [notebook.name for notebook in list_notebooks()])
def test_every_notebook_comes_to_its_end_without_a_failure(name: str, day: Day) -> None:
    """On Kaggle, from the uploaded wheels alone; and its outputs come back."""
    for cell in day.executed[name]["cells"]:
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error"
    printed = read_text(day.executed[name])
    assert f"{name} on a Kaggle kernel" in printed
    assert f"{name}: finished" in printed
    assert day.pulled[name].code == 0, day.pulled[name].words
    assert (day.outputs(name) / "kernel.json").is_file()
    assert "Traceback" not in printed


def test_the_dataset_is_uploaded_once_and_has_no_torch(day: Day) -> None:
    versions = day.desk.world.datasets[WHEELS]
    assert len(versions) == 1
    names = {name.partition("-")[0] for name in versions[0] if name.endswith(".whl")}
    assert {"fast_or_slow", "torch_geometric", "isal", "pymetis"} <= names
    assert not names & {"torch", "numpy", "scipy", "triton", "lightgbm"}
    assert MANIFEST in versions[0]
    assert sum(map(len, versions[0].values())) < 50e6


@pytest.mark.parametrize("name", TRAINING)
def test_models_and_predictions_come_back(name: str, day: Day) -> None:
    """What was pulled is a run like any other: complete, of the pushed commit."""
    run = Run.existing(day.outputs(name) / "run")
    graphs = predictions.read(run.graphs)
    assert run.experiments()
    for experiment in run.experiments():
        frame = predictions.read(run.predictions(experiment, "test"))
        rows = graphs.filter(
            pl.col("split") == "test",
            pl.col("collection").is_in(frame["collection"].unique().to_list()),
        )
        asked = set(rows.select("collection", "graph").iter_rows())
        assert set(frame.select("collection", "graph").unique().iter_rows()) == asked
        models = list((run.folder / experiment / "jobs").glob("*/*/model/*"))
        assert models or not find_experiment(experiment).ranker.learns


def test_the_submission_is_that_of_all_models_together(day: Day) -> None:
    run = Run.existing(day.outputs(LAST) / "run")
    together = [Run.existing(day.outputs(name) / "run").experiments() for name in TRAINING]
    assert run.experiments() == [name for names in together for name in names]
    recipe = find_recipe(DEFAULT_RECIPE)
    assert set(run.experiments()) == {*recipe.names(), recipe.fallback}
    graphs = predictions.read(run.graphs)
    csv = day.outputs(LAST) / "submission.csv"
    assert check_submission(csv, expect(graphs, None)) == (graphs["split"] == "test").sum()
    assert (day.outputs(LAST) / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", [*TRAINING, LAST])
def test_the_bundles_that_were_made_there_rank_here(name: str, day: Day) -> None:
    """The last one with the models of both training notebooks, and without their runs."""
    path = day.outputs(name) / "bundle.zip"
    assert str(path.relative_to(day.desk.folder)) in day.pulled[name].words
    bundle = load_bundle(path)
    kinds = {"2-train-layout": ["layout"], LAST: ["layout", "tile"]}.get(name, ["tile"])
    for kind in kinds:
        file = next(file for file in find_files(SAMPLE) if file.collection.kind == kind)
        graph = read_graph(file.path)
        assert sorted(bundle.rank(graph).order) == list(range(graph.num_configs))


def test_own_programs_are_measured_learned_from_and_ranked(day: Day) -> None:
    """By the models of the package, and by those that learned from the others of the kind."""
    printed = read_text(day.executed[MEASURING])
    assert "Learned from: 1 programs. Kept aside: mlp_001." in printed
    assert "package's models" in printed
    made = day.outputs(MEASURING)
    names = {file.path.stem for file in find_files(made / "data")}
    assert "mlp_000" in names
    assert "mlp_001" not in names


def test_a_shared_bundle_predicts_the_test_split_as_its_run(day: Day) -> None:
    """All test graphs that are attached; of those that the run had, the very rows."""
    assert day.alone is not None
    made = day.alone.working
    assert read_session_record(made).state == "finished"
    assert not (made / "run").exists()
    asked = {f"{f.collection.name}:{f.name}": None for f in choose_files() if f.split == "test"}
    assert check_submission(made / "submission.csv", Expected(asked, "the data")) == len(asked)
    rows = [
        set(read_rows(folder / "submission.csv", folder)) for folder in (made, day.outputs(LAST))
    ]
    assert rows[1] < rows[0]


def test_the_pictures_are_there(day: Day) -> None:
    """How they look is for people; that they are shown is checked.

    Nothing was submitted on that day, so the leaderboard's says so and draws no empty frames.
    """
    shown = {
        name: sum(
            "image/png" in output.get("data", {})
            for cell in day.executed[name]["cells"]
            for output in cell.get("outputs", [])
        )
        for name in ("1-look-at-the-data", "5-leaderboard")
    }
    assert shown == {"1-look-at-the-data": 8, "5-leaderboard": 0}
