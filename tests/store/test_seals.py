"""Every byte of a store is sealed: damage is found, named, never taken over, and made again."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from solution.data.folders import find_files
from solution.experiments.base import find_experiment
from solution.features.preparation import Preparation
from solution.store.graph_file import GraphCache, read_prepared
from solution.store.preparing import prepare_store
from solution.store.store import Store, read_store_record, seal_file
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from solution.training.opening import open_store
from tests.made.graphs import make_layout_graph, write_graph
from tests.made.guarded import Guard
from tests.store.test_store import SAMPLE_ROWS, prepare, snapshot, write_data

FILES = ("store.json", "graphs.parquet", "sample_submission.csv")
AGAIN = "Prepare the data again"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Of seven graphs and a sample, in tmp_path/store."""
    (write_data(tmp_path) / "sample_submission.csv").write_text(SAMPLE_ROWS)
    return prepare(tmp_path)


def flip(path: Path, place: int = -20, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def read_whole(folder: Path) -> list[str]:
    """What is wrong with a store, if its list can be read at all."""
    try:
        return Store.open(folder).find_defects()
    except InputError as error:
        return [str(error)]


def refuse(path: Path, seal: str | None = None) -> str:
    with pytest.raises(InputError, match=AGAIN) as caught:
        read_prepared(path, seal)
    assert str(path) in str(caught.value)
    return str(caught.value)


def grow(store: Store) -> None:
    write_graph(make_layout_graph(7, name="more"), store.folder.with_name("data"))


def lose_the_list(store: Store) -> None:
    (store.folder / "graphs.parquet").unlink()


def stop(store: Store) -> None:
    """As a preparation that was killed leaves it: no list, and none named."""
    lose_the_list(store)
    write_sealed(read_store_record(store.folder), store.folder / "store.json")


def lose_another(store: Store) -> None:
    store.paths()[3].unlink()


def change_nothing(store: Store) -> None:
    """The same command once more."""


@pytest.mark.parametrize("then", [grow, stop, lose_the_list, lose_another, change_nothing])
def test_damage_is_never_taken_over(then: Callable[[Store], None], store: Store) -> None:
    """Whatever makes the next preparation look at the files."""
    path = store.paths()[1]
    sound = path.read_bytes()
    flip(path)
    assert len(read_whole(store.folder)) == 1
    then(store)
    prepared = prepare(store.folder.parent)
    assert path.read_bytes() == sound
    assert prepared.find_defects() == []
    assert snapshot(prepared.folder) == snapshot(prepare(store.folder.parent, replace=True).folder)


def test_what_is_sound_is_not_prepared_again(store: Store) -> None:
    times = {path: path.stat().st_mtime_ns for path in store.paths()}
    damaged = store.paths()[2]
    flip(damaged)
    stop(store)
    prepare(store.folder.parent)
    changed = [path for path, time in times.items() if path.stat().st_mtime_ns != time]
    assert changed == [damaged]


def prepare_whole(store: Store) -> Store:
    """Another store of the same files, which keeps all nodes."""
    files = find_files(store.folder.with_name("data"))
    return prepare_store(files, store.folder.with_name("other"), Preparation(None))


@pytest.mark.parametrize("then", [stop, change_nothing])
def test_no_graph_is_taken_over_from_another(then: Callable[[Store], None], store: Store) -> None:
    """It is sound, of the same file, and keeps other nodes."""
    before = snapshot(store.folder)
    other = prepare_whole(store)
    for path, source in zip(store.paths(), other.paths(), strict=True):
        shutil.copyfile(source, path)
    then(store)
    prepared = prepare(store.folder.parent)
    assert {n: c for n, c in snapshot(prepared.folder).items() if n in before} == before


@pytest.mark.parametrize("name", FILES)
def test_check_finds_every_byte_of_the_small_files(name: str, store: Store) -> None:
    path, generator = store.folder / name, random.Random(name)
    sound = path.read_bytes()
    damaged = [b"", sound[:-1], sound + b"\n", sound[: len(sound) // 2], sound[:16]]
    for place in sorted(generator.sample(range(len(sound)), min(len(sound), 120))):
        flipped = bytearray(sound)
        flipped[place] ^= 1 << generator.randrange(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        (defect,) = read_whole(store.folder)
        assert str(path) in defect and "data again" in defect
    path.unlink()
    (defect,) = read_whole(store.folder)
    assert str(store.folder) in defect
    path.write_bytes(sound)
    assert read_whole(store.folder) == []


@pytest.mark.parametrize("name", FILES[1:])
@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_damaged_list_or_sample_is_made_again(
    name: str, damage: Callable[[Path], None], store: Store
) -> None:
    before = snapshot(store.folder)
    damage(store.folder / name)
    assert snapshot(prepare(store.folder.parent).folder) == before


def test_a_damaged_record_is_refused_with_what_helps(store: Store) -> None:
    """Not emptied: it may not be a store at all."""
    before = snapshot(store.folder)
    content = (store.folder / "store.json").read_text()
    (store.folder / "store.json").write_text(content.replace('"hops": 1', '"hops": 9'))
    for options in ({}, {"replace": True}, {"rebuild": True}):
        with pytest.raises(InputError, match="and prepare"):
            prepare(store.folder.parent, **options)
    shutil.rmtree(store.folder)
    assert snapshot(prepare(store.folder.parent).folder) == before


def test_a_sample_that_is_not_the_stores_is_not_looked_at(tmp_path: Path) -> None:
    write_data(tmp_path)
    store = prepare(tmp_path)
    (store.folder / "sample_submission.csv").write_text(SAMPLE_ROWS)
    assert Store.open(store.folder).sample_submission is None


def test_a_graph_over_another_is_refused_when_it_is_read(store: Store) -> None:
    paths = store.paths()
    for source, target in ((paths[0], paths[1]), (paths[0], paths[3]), (paths[5], paths[0])):
        sound = target.read_bytes()
        shutil.copyfile(source, target)
        assert f" {source.parent.name} {source.stem}" in refuse(target)
        target.write_bytes(sound)


def test_the_same_graph_of_another_store_is_refused_by_its_seal(store: Store) -> None:
    path, seal = store.paths()[0], store.graphs["checksum"][0]
    read_prepared(path, seal)
    shutil.copyfile(prepare_whole(store).paths()[0], path)
    read_prepared(path)
    assert "was written" in refuse(path, seal)
    graphs = store.load(store.graphs[:2], GraphCache())
    with pytest.raises(InputError, match="was written"):
        graphs[0]
    assert graphs[1:][0].name == store.graphs["graph"][1]


def test_a_flipped_byte_is_found_when_the_array_is_read(store: Store) -> None:
    generator = random.Random(0)
    for path in store.paths()[::3]:
        sound = path.read_bytes()
        start = 8 + int.from_bytes(sound[:8], "little")
        for place in generator.sample(range(start, len(sound)), 60):
            flip(path, place, generator.randrange(8))
            assert "was written" in refuse(path)
            path.write_bytes(sound)


def test_a_sealed_record_of_somebody_else_is_checked_too(store: Store) -> None:
    """When a run opens the store."""
    record = read_sealed(store.folder / "store.json", "a record")
    wrong = ({"hops": "1"}, {"hops": [1]}, {"hops": False}, {"hops": -1}, {"hops": 1.5}, {})
    for changes in wrong:
        record["preparation"] = {"version": 1, **changes}
        write_sealed(record, store.folder / "store.json")
        opened = open_store(store.folder, store.folder, [find_experiment("nothing_001")])
        with pytest.raises(InputError, match=AGAIN), opened:
            pass


def test_a_record_that_is_none_is_refused(store: Store) -> None:
    deep = 100_000 * "["
    for content in (deep, f'{{"format": 2, "preparation": {deep}', "[]", "null", "7"):
        (store.folder / "store.json").write_text(content)
        (defect,) = read_whole(store.folder)
        assert "expected the" in defect
        with pytest.raises(InputError, match="expected the"):
            prepare(store.folder.parent)


def test_a_list_names_graphs_and_no_other_files(store: Store) -> None:
    for change in (
        pl.lit("../../../secret").alias("graph"), pl.lit("a\0b").alias("graph"),
        pl.lit("secret").alias("split"), pl.lit("tile:nlp").alias("collection"),
        pl.lit(None, pl.String()).alias("checksum"), pl.lit(None, pl.Int64()).alias("configs"),
    ):  # fmt: skip
        forge_list(store, store.graphs.with_columns(change))
        (defect,) = read_whole(store.folder)
        assert "expected the" in defect, str(change)


def test_a_list_of_rows_without_end_is_not_read(store: Store, guard: Guard) -> None:
    """A thousand bytes may stand for them, as they are all alike."""
    forge_list(store, store.graphs[:1].select(pl.all().repeat_by(3_000_000)).explode(pl.all()))
    (defect,) = guard.call(read_whole, store.folder)
    assert "000 rows" in defect


def forge_list(store: Store, graphs: pl.DataFrame) -> None:
    graphs.write_parquet(store.folder / "graphs.parquet")
    content = (store.folder / "graphs.parquet").read_bytes()
    record = read_sealed(store.folder / "store.json", "a record")
    record["files"]["graphs.parquet"] = seal_file(content)
    write_sealed(record, store.folder / "store.json")


def test_a_store_of_an_earlier_format_says_how_to_make_it_anew(store: Store) -> None:
    old = '{\n  "format": 1,\n  "preparation": {\n    "version": 1,\n    "hops": 1\n  }\n}\n'
    before = snapshot(store.folder)
    (store.folder / "store.json").write_text(old)
    with pytest.raises(InputError, match="1.*expected.*2"):
        Store.open(store.folder)
    with pytest.raises(InputError, match="--replace"):
        prepare(store.folder.parent)
    assert snapshot(prepare(store.folder.parent, replace=True).folder) == before
