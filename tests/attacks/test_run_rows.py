"""Single attacks on what a run has written: the same command makes it again, the same bytes."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ensembles.recipe import make_recipe
from solution.experiments.base import Experiment
from solution.models.catalogue import load_model
from solution.runs.folder import Run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import read_sealed, remove, write_sealed
from solution.training.executors.local import LocalExecutor
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from submissions.build import build_submission
from tests.attacks import making
from tests.attacks.damage import DAMAGE
from tests.attacks.stories import list_results
from tests.made.guarded import Guard

pytestmark = pytest.mark.slow
RIDGE = dataclasses.replace(making.RIDGE, seeds=(0, 1), collections=("tile:xla",))
TREES = Experiment("trees", ("tile:xla",), making.TREES)
EXPERIMENTS = (RIDGE, TREES)
FOLD = "jobs/tile-xla/fold-0-seed-0"
FILES = {
    "record": "run.json",
    "graphs": "graphs.parquet",
    "labels": "labels.parquet",
    "seal of the labels": "labels.parquet.seal",
    "sample": "sample_submission.csv",
    "record of a job": f"ridge/{FOLD}/job.json",
    "job, test": f"ridge/{FOLD}/test.parquet",
    "job, out of fold": f"ridge/{FOLD}/out_of_fold.parquet",
    "linear model": f"ridge/{FOLD}/model/model.safetensors",
    "record of a model": f"ridge/{FOLD}/model/model.json",
    "trees": f"trees/{FOLD}/model/model.txt",
    "gathered predictions": "ridge/out_of_fold/predictions.parquet",
    "ranking": "mine/test/ranking.parquet",
    "submission": "submission.csv",
    "recipe": "recipe.json",
}
CHOSEN = ("middle byte", "cut in half", "empty", "deleted", "folder", "pipe", "link to itself")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a finished run."""
    folder = tmp_path_factory.mktemp("whole")
    making.make_store(folder)
    assert go_on(folder) == ""
    return folder


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(whole, tmp_path / "place")
    return tmp_path / "place"


def go_on(folder: Path, experiments: tuple[Experiment, ...] = EXPERIMENTS) -> str:
    """Train what is missing, and write the submission; what is said against it."""
    store = Store.open(folder / "store")
    options: Any = {"scheme": "graph", "folds": 2, "collections": ("tile:xla",)}
    try:
        with open_experiments(experiments, store, folder / "run", **options) as (plan, run):
            run_experiments(experiments, plan, run, LocalExecutor(1))
            members = {"ridge": 1.0, "trees": 1.0}
            fields = {"name": "mine", "members": members, "fallback": "ridge"}
            build_submission(run, make_recipe("mine", fields))
    except (InputError, OSError) as error:  # what the command line ends with exit code 2 for
        return str(error)
    return ""


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", CHOSEN)
def test_what_is_damaged_is_made_again(
    damage: str, file: str, place: Path, whole: Path, guard: Guard
) -> None:
    """Or it is said which file is in the way; without it the command goes on."""
    run = place / "run"
    path, before = run / FILES[file], list_results(run)
    DAMAGE[damage](path)
    refusal = guard.call(go_on, place)
    if refusal:
        assert str(path) in refusal or f"{run}: " in refusal
        assert {n: c for n, c in list_results(run).items() if n != FILES[file]}.items() <= (
            before.items()
        )
        assert file == "record" or damage in ("folder", "pipe", "endless", "link to itself"), (
            f"a dead end: {refusal}"
        )
        remove(run if file == "record" else path)
        assert guard.call(go_on, place) == ""
    assert list_results(run) == list_results(whole / "run")


def empty_job(run: Path) -> None:
    shutil.rmtree(run / "ridge" / FOLD)
    (run / "ridge" / FOLD).mkdir()


def job_as_a_file(run: Path) -> None:
    shutil.rmtree(run / "ridge" / FOLD)
    (run / "ridge" / FOLD).write_text("no folder")


def no_job(run: Path) -> None:
    shutil.rmtree(run / "ridge" / FOLD)


def no_jobs(run: Path) -> None:
    shutil.rmtree(run / "ridge")


def stray_job(run: Path) -> None:
    (run / "ridge" / FOLD).with_name("fold-7-seed-0").mkdir()


def other_seed(run: Path) -> None:
    one = run / "ridge" / FOLD
    shutil.rmtree(one)
    shutil.copytree(one.with_name("fold-0-seed-1"), one)


def swap_folds(run: Path) -> None:
    one, other = (run / "ridge" / FOLD).with_name("fold-1-seed-0"), run / "ridge" / FOLD
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


def other_experiment(run: Path) -> None:
    shutil.rmtree(run / "ridge" / FOLD)
    shutil.copytree(run / "trees" / FOLD, run / "ridge" / FOLD)


def unknown_files(run: Path) -> None:
    (run / "ridge" / FOLD / "more.txt").write_text("of somebody")
    (run / "ridge" / "jobs" / "more").mkdir()


def half_a_folder(run: Path) -> None:
    (run / "ridge" / "jobs" / "tile-xla" / ".partial-x").mkdir()
    (run / ".partial-y").write_text("left")


FOLDERS = (empty_job, job_as_a_file, no_job, no_jobs, stray_job, other_seed, swap_folds,
           other_experiment, unknown_files, half_a_folder)  # fmt: skip


@pytest.mark.parametrize("change", FOLDERS)
def test_a_job_that_is_not_whole(change: Callable[[Path], None], place: Path, whole: Path) -> None:
    change(place / "run")
    assert go_on(place) == ""
    assert list_results(place / "run") == list_results(whole / "run")


JOBS: dict[str, dict[str, object]] = {
    "seconds null": {"seconds": None},
    "fold as text": {"fold": "0"},
    "another fold": {"fold": 1},
    "another seed": {"seed": 1},
    "another experiment": {"experiment": "trees"},
    "another source": {"source": "x"},
    "files elsewhere": {"files": {"../../../../run.json": "1:x"}},
    "files a list": {"files": []},
    "no files": {"files": {}},
}


@pytest.mark.parametrize("name", JOBS)
def test_a_record_of_a_job_that_is_sealed_anew(name: str, place: Path, whole: Path) -> None:
    path = place / "run" / "ridge" / FOLD / "job.json"
    write_sealed(read_sealed(path, "a job") | JOBS[name], path)
    assert go_on(place) == ""
    assert list_results(place / "run") == list_results(whole / "run")


def forge(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        record = read_sealed(run / "run.json", "a run")
        change(record)
        write_sealed(record, run / "run.json")

    return apply


RECORDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "folds": (forge(lambda r: r["settings"].update(folds=3)), "folds: 3, now 2"),
    "scheme": (forge(lambda r: r["settings"].update(scheme="x")), "scheme: x, now graph"),
    "code": (forge(lambda r: r.update(code="x")), "by other code"),
    "experiments a list": (forge(lambda r: r["settings"].update(experiments=[])), "run.json"),
    "settings a list": (forge(lambda r: r.update(settings=[])), "run.json"),
    "another experiment": (
        forge(lambda r: r["settings"]["experiments"]["ridge"].update(source="x")),
        "(ridge, source: x, now "),
    "no seal": (lambda run: (run / "run.json").write_text('{"settings": {}}') and None, "run.json"),
    "nested": (lambda run: (run / "run.json").write_text(100_000 * "[") and None, "run.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_another_record_of_the_run_is_refused(name: str, place: Path) -> None:
    change, words = RECORDS[name]
    change(place / "run")
    before = list_results(place / "run")
    refusal = go_on(place)
    assert words in refusal
    assert str(place / "run") in refusal
    assert list_results(place / "run") == before


@pytest.mark.parametrize("library", ["numpy", "torch", "python"])
def test_other_versions_are_said(
    library: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(lambda record: record["versions"].update({library: "0.1"}))(place / "run")
    assert go_on(place) == ""
    said = " ".join(capsys.readouterr().err.split())
    assert f"was begun with other versions ({library} 0.1, now" in said


def load_and_predict(folder: Path) -> bytes:
    scores: bytes = load_model(folder).predict(making.TILE).tobytes()
    return scores


@pytest.mark.parametrize("damage", CHOSEN)
@pytest.mark.parametrize("experiment", ["ridge", "trees"])
def test_a_damaged_model_is_not_loaded(
    experiment: str, damage: str, place: Path, guard: Guard
) -> None:
    model = place / "run" / experiment / FOLD / "model"
    path = next(model.glob("model.[st]*"))
    assert guard.call(load_and_predict, model)
    DAMAGE[damage](path)
    with pytest.raises((InputError, OSError)) as caught:
        guard.call(load_and_predict, model)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_refused(damage: str, place: Path, guard: Guard) -> None:
    DAMAGE[damage](place / "run" / "run.json")
    with pytest.raises((InputError, OSError)) as caught:
        guard.call(open_run, place / "run")
    assert str(place / "run") in str(caught.value)


def open_run(folder: Path) -> None:
    Run.existing(folder).record()
