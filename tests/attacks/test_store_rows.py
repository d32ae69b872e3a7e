"""Single attacks on a prepared store: each is found, named, and made again or said what to do."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from solution.data.folders import find_files, find_sample_submission
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import remove
from tests.attacks.damage import DAMAGE, SECRET
from tests.made.graphs import make_wide_graph, write_graph
from tests.made.guarded import Guard
from tests.processes import FASTSLOW
from tests.store.test_store import SAMPLE_ROWS, snapshot, write_data

pytestmark = pytest.mark.slow
GRAPHS = "graphs"
FILES = {
    "record": "store.json",
    "list": "graphs.parquet",
    "sample": "sample_submission.csv",
    "layout graph": f"{GRAPHS}/layout/xla/random/train/program_1.safetensors",
    "tile graph": f"{GRAPHS}/tile/xla/valid/kernel_1.safetensors",
    "mapped graph": f"{GRAPHS}/layout/xla/random/train/wide.safetensors",
}
TRAIN = ("--experiment", "nothing_001", "--workers", "1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and the store that was made of it."""
    folder = tmp_path_factory.mktemp("whole")
    write_graph(make_wide_graph(configs=18_000), write_data(folder))
    (folder / "data" / "sample_submission.csv").write_text(SAMPLE_ROWS)
    prepare(folder)
    return folder


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(whole, tmp_path / "place")
    return tmp_path / "place"


def prepare(folder: Path) -> None:
    data = folder / "data"
    files, sample = find_files(data), find_sample_submission(data)
    prepare_store(files, folder / "store", Preparation(), sample, workers=1)


def try_to_prepare(folder: Path) -> str:
    """What is said against it."""
    try:
        prepare(folder)
    except (InputError, OSError) as error:  # what the command line ends with exit code 2 for
        return str(error)
    return ""


def find_defects(store: Path) -> list[str]:
    """As `fastslow check` and a run do."""
    try:
        return Store.open(store).find_defects()
    except (InputError, OSError) as error:
        return [str(error)]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_made_again(
    damage: str, file: str, place: Path, whole: Path, guard: Guard
) -> None:
    path = place / "store" / FILES[file]
    DAMAGE[damage](path)
    (defect,) = guard.call(find_defects, place / "store")
    assert str(path) in defect or f"{place / 'store'}: there is no store here" in defect
    refusal = guard.call(try_to_prepare, place)
    if refusal:  # it says which file is in the way
        assert str(path) in refusal or f"{place / 'store'}: " in refusal
        remove(place / "store" if file == "record" else path)
        assert guard.call(try_to_prepare, place) == ""
    assert snapshot(place / "store") == snapshot(whole / "store")
    assert not [p for p in (place / "store").rglob("*") if p.is_symlink()]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("command", ["check", "prepare", "run"])
def test_a_link_to_a_foreign_file(command: str, file: str, place: Path, whole: Path) -> None:
    path, secret = place / "store" / FILES[file], place / "secret"
    secret.write_text(SECRET)
    path.unlink()
    path.symlink_to(secret)
    words = {
        "check": ("store",),
        "prepare": ("data", "--out", "store"),
        "run": ("store", *TRAIN),
    }[command]
    done = FASTSLOW.run(command, *words, cwd=place)
    assert SECRET not in done.stdout + done.stderr
    assert secret.read_text() == SECRET
    assert "Traceback" not in done.stderr
    if done.returncode == 0:  # it was made again
        assert command == "prepare"
        assert snapshot(place / "store") == snapshot(whole / "store")
    else:
        assert done.returncode == 2
        assert "store" in done.stderr


def describe(**changes: object) -> str:
    preparation = {"version": 1, "hops": 1} | changes
    return json.dumps({"format": 2, "preparation": preparation})


RECORDS: dict[str, str | bytes] = {
    "format 1": '{"format": 1, "preparation": {"version": 1, "hops": 1}}',
    "format 3": '{"format": 3, "preparation": {}}',
    "format as text": '{"format": "2", "preparation": {}}',
    "version 9": describe(version=9),
    "hops as text": describe(hops="1"),
    "hops as a list": describe(hops=[1]),
    "no preparation": '{"format": 2}',
    "no JSON": "no JSON",
    "list": "[]",
    "null": "null",
    "number": "7",
    "latin-1": '{"format": "\u00e9"}'.encode("latin-1"),
    "5,000 digits": '{"format": ' + 5_000 * "9" + "}",
    "empty": "",
    "nested": 100_000 * "[",
    "nested within": '{"format": 2, "preparation": ' + 100_000 * "[",
    "NaN": '{"format": NaN, "preparation": {}}',
    "NUL": "\0" * 500,
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("command", ["check", "prepare"])
def test_a_record_of_something_else(name: str, command: str, place: Path) -> None:
    content = RECORDS[name]
    (place / "store" / "store.json").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    before = snapshot(place / "store")
    words = ("store",) if command == "check" else ("data", "--out", "store")
    done = FASTSLOW.run(command, *words, cwd=place)
    assert done.returncode == 2, done.stderr
    assert "store" in done.stderr
    assert "Traceback" not in done.stderr
    assert snapshot(place / "store") == before


def copy_over(store: Store) -> None:
    shutil.copyfile(store.paths()[0], store.paths()[1])


def swap(first: int, second: int) -> Callable[[Store], None]:
    def change(store: Store) -> None:
        one, other = store.paths()[first], store.paths()[second]
        one.rename(one.with_suffix(".x"))
        other.rename(one)
        one.with_suffix(".x").rename(other)

    return change


# In the order of the list: a test graph is the fifth, of tiles the last three.
SWAPS = {
    "copied over another": copy_over,
    "swapped in a split": swap(0, 1),
    "train and test": swap(0, 4),
    "layout and tile": swap(0, 5),
}


@pytest.mark.parametrize("name", SWAPS)
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_file_of_another_graph(name: str, command: str, place: Path, whole: Path) -> None:
    SWAPS[name](Store.open(place / "store"))
    done = FASTSLOW.run(command, "store", *(TRAIN if command == "run" else ()), cwd=place)
    assert done.returncode == 2, done.stderr
    assert ".safetensors: expected a prepared graph, but it is" in done.stderr
    assert not (place / "runs").exists() or not list((place / "runs").rglob("submission.csv"))
    prepare(place)
    assert snapshot(place / "store") == snapshot(whole / "store")


def flip_graph(place: Path) -> None:
    DAMAGE["last byte"](place / "store" / FILES["layout graph"])


@pytest.mark.parametrize("then", ["grow", "again", "lose the list", "lose another", "stop"])
def test_damage_is_not_laundered(then: str, place: Path, whole: Path) -> None:
    flip_graph(place)
    assert FASTSLOW.run("check", "store", cwd=place).returncode == 2
    if then == "grow":
        write_graph(make_wide_graph(configs=20, name="zz"), place / "data")
    elif then == "lose the list":
        (place / "store" / FILES["list"]).unlink()
    elif then == "lose another":
        (place / "store" / FILES["tile graph"]).unlink()
    elif then == "stop":
        os.truncate(place / "store" / FILES["list"], 10)
    done = FASTSLOW.run("prepare", "data", "--out", "store", "--workers", "1", cwd=place)
    assert done.returncode == 0, done.stderr
    assert FASTSLOW.run("check", "store", cwd=place).returncode == 0
    sound = snapshot(whole / "store")
    now = snapshot(place / "store")
    assert {name: now[name] for name in sound if name.startswith(GRAPHS + "/")}.items() <= (
        sound.items()
    )


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_sample_without_rows_is_never_a_submission(command: str, place: Path) -> None:
    (place / "store" / FILES["sample"]).write_text("ID,TopConfigs\n")
    done = FASTSLOW.run(command, "store", *(TRAIN if command == "run" else ()), cwd=place)
    assert done.returncode == 2
    assert "sample_submission.csv" in done.stderr
    assert not list(place.rglob("submission.csv"))
