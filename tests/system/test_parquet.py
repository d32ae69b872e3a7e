"""Prediction files are read a few graphs at a time, and nothing is lost, doubled or mixed up."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.predictions import KEYS, SCHEMA, read, write
from solution.system.errors import InputError
from solution.system.parquet import read_by_graphs, reading, write_batches
from tests.made.guarded import Guard, largest_file

COLLECTIONS = ["layout:nlp:default", "layout:xla:random", "tile:xla"]
GRAPHS = st.dictionaries(
    st.tuples(st.sampled_from(COLLECTIONS), st.sampled_from("abcd")), st.integers(1, 9), max_size=8
)


def make(graphs: dict[tuple[str, str], int], seeds: int = 1) -> pl.DataFrame:
    rows = [
        (*key, config, 0, seed, float(config))
        for key, count in graphs.items()
        for config in range(count)
        for seed in range(seeds)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort(KEYS)


@given(tables=st.lists(GRAPHS, min_size=1, max_size=3), max_rows=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_together_the_batches_are_the_files_and_no_graph_is_divided(
    tables: list[dict[tuple[str, str], int]],
    max_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    frames = {str(place): make(graphs, place + 1) for place, graphs in enumerate(tables)}
    paths = {name: folder / f"{name}.parquet" for name in frames}
    for name, frame in frames.items():
        write(frame, paths[name])
    batches = list(read_by_graphs(paths, max_rows))
    for (name, frame), graphs in zip(frames.items(), tables, strict=True):
        parts = [found[name] for _, found in batches if name in found]
        assert pl.concat([SCHEMA.to_frame(), *parts]).equals(frame)
        seen = [key for part in parts for key in part.select(KEYS[:2]).unique().rows()]
        assert sorted(seen) == sorted(graphs)
    for collection, found in batches:
        assert found.keys() == {
            name for name, frame in frames.items() if collection in frame["collection"].to_list()
        }
        for frame in found.values():
            assert set(frame["collection"]) <= {collection}


def test_a_missing_broken_or_unordered_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    table = make({("tile:xla", "a"): 2, ("tile:xla", "b"): 2})
    for content in (None, b"", b"no parquet", b"PAR1" + bytes(100) + b"PAR1", table.reverse()):
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            content.write_parquet(path)
        with pytest.raises(InputError, match=r"mine\.parquet"):
            list(read_by_graphs({"mine": path}))


def try_flips(path: Path, places: range) -> set[str]:
    """How reading ends where one bit of the file is another."""
    endings, content = set(), path.read_bytes()
    for place in places:
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                read(path)
                list(read_by_graphs({"mine": path}))
                endings.add("read")
            except BaseException as error:  # what polars raises when it panics is no Exception
                named = "mine.parquet: " in str(error)
                endings.add(f"{type(error).__name__}, {'named' if named else str(error)}")
    return endings


def test_a_damaged_file_is_refused_even_where_polars_panics(tmp_path: Path, guard: Guard) -> None:
    """At these places of this file it does. (At others it ends the process: see SECURITY.md.)"""
    path = tmp_path / "mine.parquet"
    frame = make({("tile:xla", "a"): 3, ("tile:xla", "b"): 2, ("layout:xla:random", "c"): 4}, 2)
    frame.write_parquet(path, compression="zstd", statistics=False)
    assert guard.call(try_flips, path, range(68, 72)) <= {"read", "InputError, named"}


def test_a_panic_is_a_message(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    message = r"mine\.parquet: expected a test, but: out of bounds"
    with pytest.raises(InputError, match=message), reading(path, "a test"):
        raise pl.exceptions.PanicException("out of bounds")


def test_a_failure_on_the_way_keeps_its_words_and_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    write(make({("tile:xla", "old"): 1}), path)
    before = path.read_bytes()

    def batches() -> Iterator[pl.DataFrame]:
        yield make({("tile:xla", "a"): 3})
        raise InputError("member two has no prediction")

    with pytest.raises(InputError, match="no prediction"):
        write_batches(batches(), SCHEMA, path)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["all.parquet", "all.parquet.seal"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_full_disk_is_said_and_the_old_file_stays(tmp_path: Path, streamed: bool) -> None:
    path = tmp_path / "mine.parquet"
    write(make({("tile:xla", "a"): 3}), path)
    before = path.read_bytes()
    frame = make({("tile:xla", f"graph_{i}"): 50 for i in range(100)})
    with pytest.raises(OSError, match=f"too large.*'{path}'"), largest_file(1000):
        write_batches([frame], SCHEMA, path) if streamed else write(frame, path)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.parquet", "mine.parquet.seal"]
