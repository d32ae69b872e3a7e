"""Prediction files are read a few graphs at a time, and nothing is lost, doubled or mixed up."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from solution.domain.predictions import KEYS, SCHEMA, read, write
from solution.system.errors import InputError
from solution.system.parquet import read_by_graphs, reading, write_batches
from tests.conftest import REPOSITORY
from tests.made.guarded import Guard

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


def files() -> SearchStrategy[list[dict[tuple[str, str], int]]]:
    return st.lists(GRAPHS, min_size=1, max_size=3)


@given(tables=files(), max_rows=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_together_the_batches_are_the_files(
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
    for name, frame in frames.items():
        parts = [found[name] for _, found in batches if name in found]
        assert pl.concat([SCHEMA.to_frame(), *parts]).equals(frame)
    for collection, found in batches:
        assert found.keys() == {
            name for name, frame in frames.items() if collection in frame["collection"].to_list()
        }
        for frame in found.values():
            assert set(frame["collection"]) <= {collection}


@given(graphs=GRAPHS, max_rows=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_a_graph_is_never_divided(
    graphs: dict[tuple[str, str], int], max_rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / "one.parquet"
    write(make(graphs), path)
    seen: list[tuple[str, str]] = []
    for _, found in read_by_graphs({"one": path}, max_rows):
        seen += found["one"].select("collection", "graph").unique().rows()
    assert sorted(seen) == sorted(graphs)


def test_a_file_in_another_order_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    make({("tile:xla", "a"): 2, ("tile:xla", "b"): 2}).reverse().write_parquet(path)
    with pytest.raises(InputError, match=r"mine\.parquet"):
        list(read_by_graphs({"mine": path}))


@pytest.mark.parametrize("content", [None, b"", b"no parquet", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_missing_or_broken_file_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mine.parquet"
    if content is not None:
        path.write_bytes(content)
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
def test_a_full_disk_is_said_in_words_and_the_old_file_stays(
    tmp_path: Path, streamed: bool
) -> None:
    """In a process of its own, which may write only small files."""
    path = tmp_path / "mine.parquet"
    write(make({("tile:xla", "a"): 3}), path)
    before = path.read_bytes()
    call = "write_batches([frame], SCHEMA, path)" if streamed else "write(frame, path)"
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from solution.domain.predictions import SCHEMA, write\n"
        "from solution.system.parquet import write_batches\n"
        "from tests.system.test_parquet import make\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "frame = make({('tile:xla', f'graph_{i}'): 50 for i in range(100)})\n"
        f"path = Path(sys.argv[1]); {call}"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert "too large" in done.stderr.splitlines()[-1]
    assert f"'{path}'" in done.stderr.splitlines()[-1]
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.parquet", "mine.parquet.seal"]
