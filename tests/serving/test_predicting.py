"""A bundle predicts the test split of any data as the run that it was packed from."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from ensembles.merge import find_members, merge_files
from solution.data.folders import find_files
from solution.domain.predictions import RANKING_SCHEMA
from solution.features.preparation import Preparation
from solution.runs.folder import Run
from solution.serving.predicting import predict_test_split
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from submissions.writer import write_submission
from tests.made.graphs import make_layout_graph, write_graph
from tests.serving.conftest import RECIPE


def read(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort("collection", "graph", "config")


@pytest.mark.parametrize("workers", [1, 2])
def test_files_and_stores_give_the_runs_own_ranking(
    workers: int, run: Run, bundle_zip: Path, data: Path, store: Store, tmp_path: Path
) -> None:
    """To the last bit, in one process and in several; and a submission can be written of it."""
    own = read(pl.concat(merge_files(find_members(run, RECIPE, "test"), RECIPE)))
    for source in (data, store.folder):
        found = predict_test_split(bundle_zip, source, workers)
        assert read(found.ranking).schema == RANKING_SCHEMA
        assert read(found.ranking).equals(own)
        path = tmp_path / "submission.csv"
        written = write_submission(found.ranking, found.graphs, found.sample_submission, path)
        assert written.rows == 4
        assert found.graphs["split"].unique().to_list() == ["test"]


def test_a_test_graph_that_is_left_out_is_said(
    bundle_zip: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(data, tmp_path / "data")
    path = next(file.path for file in find_files(copied) if file.split == "test")
    path.rename(path.with_suffix(".NPZ"))
    predict_test_split(bundle_zip, copied, 1)
    assert str(path.with_suffix(".NPZ")) in capsys.readouterr().err


def test_what_cannot_be_predicted_is_said(bundle_zip: Path, tmp_path: Path) -> None:
    """No test graphs; a collection without a model, before anything is read."""
    folder = tmp_path / "data"
    write_graph(make_layout_graph(0), folder, "train")
    with pytest.raises(InputError, match="has no graph of the test split"):
        predict_test_split(bundle_zip, folder)
    prepared = prepare_store(find_files(folder), tmp_path / "store", Preparation())
    with pytest.raises(InputError, match="has no graph of the test split"):
        predict_test_split(bundle_zip, prepared.folder)
    place = folder / "npz" / "layout" / "nlp" / "default" / "test" / "unreadable.npz"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")
    with pytest.raises(InputError, match="has no model for layout:nlp:default"):
        predict_test_split(bundle_zip, folder)
