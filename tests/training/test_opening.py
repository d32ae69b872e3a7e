"""A store is bound to its preparation and found where it was; nobody changes one that is read."""

import shutil
from pathlib import Path

import pytest

from solution.commands.options import name_of
from solution.data.folders import find_files
from solution.domain import predictions
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.models.linear import RidgeSettings
from solution.runs.folder import ORIGIN, Run, recall_command, remember_origin
from solution.runs.record import open_run
from solution.store.preparing import prepare_store
from solution.store.store import INDEX, Store
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from solution.system.sealing import replace_sealed
from solution.training.jobs import find_backlog
from solution.training.opening import (
    choose_place,
    find_hops,
    open_experiments,
    open_run_store,
    open_store,
    save_split,
)
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.store.test_store import snapshot

NOTHING = find_experiment("nothing_001")
WHOLE = find_experiment("layout_tpugraphs_001")  # looks at the whole graph
RIDGE = Experiment("ridge", ("layout:xla:random",), RidgeSettings(max_configs=6, grid=(1.0,)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for seed in range(6):
        write_graph(make_layout_graph(seed, name=f"p{seed}"), tmp_path / "data")
    write_graph(make_layout_graph(7, name="asked"), tmp_path / "data", "test")
    return tmp_path / "data"


def test_experiments_that_need_more_get_a_store_beside_it(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "stores" / "data"
    with open_store(data, place, [NOTHING]) as near:
        before = snapshot(near.folder)
        with open_store(data, place, [WHOLE]) as whole:
            assert whole.folder == place.with_name("data-whole")
            assert whole.preparation["hops"] is None
        assert snapshot(near.folder) == before
    assert choose_place(place, 1) == place
    assert choose_place(place, 3) == place.with_name("data-hops-3")


def test_only_experiments_that_rank_the_data_decide_how_much_is_kept(
    data: Path, tmp_path: Path
) -> None:
    """The whole graphs may be kept where the default store is, too."""
    tiles = find_experiment("tile_gnn_001")
    assert find_hops(["tile:xla"], [WHOLE, tiles]) == (1, "tile_gnn_001")
    assert find_hops(["tile:xla", "layout:xla:random"], [WHOLE, tiles])[0] is None
    assert find_hops(["tile:xla", "layout:xla:random"], [WHOLE, tiles], ["tile:xla"])[0] == 1
    assert find_hops(["tile:xla"], [WHOLE])[0] is None
    place = tmp_path / "stores" / "data"
    with open_store(data, place, [tiles, WHOLE]) as store:
        assert (store.folder, store.preparation["hops"]) == (place, None)


def test_a_store_that_is_read_is_not_changed(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    with open_store(data, place, [NOTHING]) as store, open_store(data, place, [NOTHING]):
        before = snapshot(store.folder)
        write_graph(make_layout_graph(8, name="more"), data)
        for preparation, replace in ((Preparation(1), False), (Preparation(None), True)):
            with pytest.raises(InputError, match="another process"):
                prepare_store(find_files(data), place, preparation, replace=replace)
        assert snapshot(store.folder) == before
    prepare_store(find_files(data), place, Preparation(1))


def test_a_place_beside_a_store_that_is_there_is_refused(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    with open_store(data, place, [NOTHING]):
        pass
    with open_store(place, data.parent / "store", [NOTHING], named=True) as store:
        assert store.folder == place
    other = tmp_path / "other"
    with (
        pytest.raises(InputError, match="--store"),
        open_store(place, other, [NOTHING], named=True),
    ):
        pass
    assert not other.exists()


def run_ridge(data: Path, place: Path, folder: Path, *beside: Experiment) -> Run:
    with open_store(data, place, [RIDGE, *beside]) as store, open_run(folder, {}) as opened:
        plan = make_plan(store, "graph", num_folds=3)
        save_split(plan, opened)
        run_experiments(find_backlog([RIDGE], plan, opened), plan, opened)
        assert "hops" not in plan.settings()
    return opened


def test_predictions_are_the_same_from_a_store_that_keeps_more(data: Path, tmp_path: Path) -> None:
    near = run_ridge(data, tmp_path / "stores" / "data", tmp_path / "near")
    whole = run_ridge(data, tmp_path / "stores" / "data", tmp_path / "whole", WHOLE)
    for part in predictions.PARTS:
        paths = (found.predictions("ridge", part) for found in (near, whole))
        one, other = (path.read_bytes() for path in paths)
        assert one == other


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


def test_the_command_that_continues_a_run_deletes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names this folder; another experiment is trained by a command that takes it."""
    data, ours = tmp_path / "data", str(run.folder)
    for given, continues, adds in (
        ("run d --run=old --replace --workers 1", "run d --workers 1 --run {}",
         "run d --workers 1 --run {} --experiment x"),
        ("train y --data d", "train y --data d --run {}", None), ("demo", "demo", None),
    ):  # fmt: skip
        monkeypatch.setattr("sys.argv", ["fastslow", *given.split()])
        remember_origin(run, data, tmp_path / "store")
        adds = adds or "run {data} --run {} --experiment x --scheme graph --folds 2"
        for name, expected in ((None, continues), ("x", adds)):
            assert recall_command(run, name) == f"fastslow {expected.format(ours, data=data)}"


def test_a_store_of_all_graphs_serves_a_quick_look(data: Path, tmp_path: Path) -> None:
    for seed in range(9, 19):
        write_graph(make_layout_graph(seed, name=f"p{seed}"), data)
    folder, sizes = tmp_path / "stores" / "all", []
    for name, few in (("all", False), ("all", True), ("few", True)):
        with open_store(data, folder.with_name(name), [NOTHING], limit=few, named=True) as store:
            sizes.append(len(store.graphs))
    assert sizes[0] == sizes[1] == 17 > sizes[2]


def test_folders_of_collections_have_stores_of_their_own() -> None:
    npz = Path("data", "npz")
    for path, name in (("layout/xla/random", "layout-xla-random"), ("tile/xla", "tile-xla"),
                       ("xla/random", "random"), (".", "npz")):  # fmt: skip
        assert name_of(npz / path, limit=False) == name
        assert name_of(npz / path, limit=True) == f"{name}-limit"


def test_a_sample_that_left_the_data_leaves_the_run(run: Run, store: Store) -> None:
    with replace_sealed(run.folder / "sample_submission.csv") as path:
        path.write_text("ID,TopConfigs\ntile:xla:a,0\n")
    before = set(run.folder.iterdir())
    save_split(make_plan(store, "graph", num_folds=2), run)
    assert len(before - set(run.folder.iterdir())) == 2  # the file and its seal


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
