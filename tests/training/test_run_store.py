"""The store of a run is found where it was, or among ours; another one is refused by name."""

import shutil
from pathlib import Path

import pytest

from solution.data.folders import find_files
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.nothing import NothingSettings
from solution.runs.folder import ORIGIN, Run, remember_origin
from solution.store.preparing import prepare_store
from solution.store.store import INDEX, Store
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from solution.training.opening import open_experiments, open_run_store
from tests.made.graphs import make_tile_graph, write_graph

NOTHING = Experiment("nothing", ("tile:xla",), NothingSettings())


def make_store(data: Path, folder: Path, first: int = 0) -> Store:
    for seed in range(first, first + 4):
        write_graph(make_tile_graph(seed, configs=6, name=f"kernel_{seed - first}"), data)
    return prepare_store(find_files(data), folder, Preparation())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "data", tmp_path / "mine" / "named")


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Run:
    folder = tmp_path / "run"
    with open_experiments([NOTHING], store, folder, scheme="graph", folds=2) as (_, run):
        remember_origin(run, tmp_path / "data", store.folder)
    return run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another working folder than that of the run."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("FASTSLOW_STORES", raising=False)
    return tmp_path / "elsewhere"


def test_it_is_where_it_was(run: Run, store: Store, elsewhere: Path) -> None:
    make_store(elsewhere / "data", elsewhere / "stores" / "named", first=9)  # another of its name
    assert open_run_store(run).folder == store.folder


def test_one_that_was_moved_is_found_among_ours(run: Run, store: Store, elsewhere: Path) -> None:
    (elsewhere / "stores").mkdir()
    store.folder.rename(elsewhere / "stores" / "named")
    assert open_run_store(run).folder == Path("stores/named")


def test_a_damaged_one_does_not_hide_an_intact_one(run: Run, store: Store, elsewhere: Path) -> None:
    shutil.copytree(store.folder, elsewhere / "stores" / "named")
    (store.folder / INDEX).write_bytes(b"damaged")
    assert open_run_store(run).folder == Path("stores/named")
    shutil.rmtree(elsewhere / "stores")
    with pytest.raises(InputError, match=f"{store.folder}.*not what was written"):
        open_run_store(run)


def test_another_one_of_its_name_is_refused(run: Run, store: Store, elsewhere: Path) -> None:
    store.folder.rename(store.folder.with_name("moved"))
    make_store(elsewhere / "data", elsewhere / "stores" / "named", first=9)
    with pytest.raises(InputError, match="stores/named.*run: of"):
        open_run_store(run)


def test_one_that_is_nowhere_is_named_as_it_was(run: Run, store: Store) -> None:
    store.folder.rename(store.folder.with_name("moved"))
    was = f"It was {store.folder}, made of"
    with pytest.raises(InputError, match=f"the store of the run is not there. {was}"):
        open_run_store(run)


@pytest.mark.parametrize("name", ["mine/named", "/x/" + "y" * 300, "/x/\0", "/dev/stdin"])
def test_a_record_of_a_stranger_opens_nothing_but_a_store(run: Run, name: str) -> None:
    path = run.folder / ORIGIN
    recorded = read_sealed(path, "an origin")
    write_sealed({**recorded, "store": name}, path)
    with pytest.raises(InputError, match="not there"):
        open_run_store(run)
