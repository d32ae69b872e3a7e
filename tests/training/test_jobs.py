"""A job that is there is whole and is itself; what is damaged or another's is trained again."""

import shutil
from pathlib import Path

import pytest

from solution.domain import predictions
from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.linear import RidgeSettings
from solution.runs.folder import Run
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.store import Store
from solution.system.sealing import find_seal
from solution.training.executors.local import LocalExecutor
from solution.training.jobs import find_backlog, list_jobs, list_missing
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan

RIDGE = Experiment("ridge", TILE, RidgeSettings(max_configs=5, grid=(1.0,)), seeds=(0, 1))


@pytest.fixture(scope="module")
def plan(sample_store: Store) -> Plan:
    return make_plan(sample_store, "architecture", num_folds=2, limit=True)


@pytest.fixture(scope="module")
def trained(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(folder, plan)
    return folder


def train(folder: Path, plan: Plan) -> Run:
    with open_run(folder, {"experiments": {}}) as run:
        save_split(plan, run)
        run_experiments(find_backlog([RIDGE], plan, run), plan, run, LocalExecutor(1))
    return run


def contents(run: Run) -> dict[str, bytes]:
    return {part: run.predictions("ridge", part).read_bytes() for part in predictions.PARTS}


def damage_record(job: Path, other: Path) -> None:
    (job / "job.json").write_text("[]")


def forge_record(job: Path, other: Path) -> None:
    path = job / "job.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))


def cut_predictions(job: Path, other: Path) -> None:
    path = job / "test.parquet"
    path.write_bytes(path.read_bytes()[:-10])


def flip_predictions(job: Path, other: Path) -> None:
    path = job / "out_of_fold.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty_folder(job: Path, other: Path) -> None:
    shutil.rmtree(job)
    job.mkdir()


def become_a_file(job: Path, other: Path) -> None:
    shutil.rmtree(job)
    job.write_text("no folder")


def take_the_other_seed(job: Path, other: Path) -> None:
    shutil.rmtree(job)
    shutil.copytree(other, job)


@pytest.mark.parametrize("attack", [
    damage_record, forge_record, cut_predictions, flip_predictions, empty_folder, become_a_file,
    take_the_other_seed,
])  # fmt: skip
def test_what_is_not_whole_is_said_and_trained_again(
    attack: object, plan: Plan, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    run = Run(tmp_path / "run")
    expected = contents(run)
    one, other = (job.folder(run) for job in list_jobs(RIDGE, plan)[:2])
    attack(one, other)  # type: ignore[operator]
    assert [job.folder(run) for job in list_missing([RIDGE], plan, run)] == [one]
    assert contents(train(run.folder, plan)) == expected
    assert read_job(one).seed == 0
    assert "trained again" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["graphs.parquet", "labels.parquet", "labels.parquet.seal"])
@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_a_damaged_split_is_drawn_again_and_the_same(
    name: str, how: str, plan: Plan, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    run = Run(tmp_path / "run")
    split = [path for table in (run.graphs, run.labels) for path in (table, find_seal(table))]
    before = {path.name: path.read_bytes() for path in split}
    path = run.folder / name
    path.unlink() if how == "deleted" else path.write_bytes(path.read_bytes()[:20])
    train(run.folder, plan)
    assert before == {path.name: path.read_bytes() for path in split}
