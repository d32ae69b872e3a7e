"""Open a store, which is a prepared data set, and check its files.

Its graphs have corrected padding and encoded configurations, and are pruned to the surroundings of
their configurable nodes (unless the preparation keeps all nodes).

    STORE/
        store.json           the format, and how the graphs were prepared; written first, and again
                             last, with the checksums of the two files below
        graphs/layout/xla/random/train/NAME.safetensors   one file per graph, written atomically
        sample_submission.csv                             a copy, if the data contained one
        graphs.parquet       a row per graph: sizes, statistics, the checksum of its file

A preparation that was killed continues where it stopped and ends with the same bytes. A store of
another format, of another preparation or from files that have changed since is rejected. Checksums
cover every byte: store.json contains checksums of itself, graphs.parquet and sample_submission.csv,
and graphs.parquet contains the checksums of the graphs. Readers compare them, and `fastslow
prepare` makes damaged files again.
"""

import hashlib
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from solution.data.folders import GraphFile
from solution.data.parallel_files import map_files
from solution.data.summaries import SCHEMA
from solution.domain.collection import NAMES, SAMPLE_SUBMISSION, SPLITS, collection
from solution.domain.graph import TIMED, Graph
from solution.domain.vocabulary import OPTION_SETS
from solution.features.preparation import VERSION, Preparation
from solution.store.graph_file import (
    AS_IT_IS,
    SUFFIX,
    GraphCache,
    LazyGraphs,
    check_prepared,
    read_prepared,
)
from solution.system.errors import InputError
from solution.system.files import open_regular, read_json, read_sealed
from solution.system.parquet import reading
from solution.system.wording import count, join_names

FORMAT = 2
RECORD, INDEX, GRAPHS = "store.json", "graphs.parquet", "graphs"
# source: a hash of the npz file's contents; checksum: the checksum (seal) of the prepared file.
INDEX_SCHEMA = pl.Schema({**SCHEMA, "source": pl.String(), "checksum": pl.String()})
# lower bound on the bytes of a row of graphs.parquet: its SHA-256 checksum
SEAL_BYTES = 32
# bytes of a store's files for which one more process checks them, because it takes time to start
BYTES_WORTH_A_WORKER = 1 << 29
MOST_NAMED = 3  # maximum number of graphs that a message names per kind (see name_kind)
LAYOUTS = "layouts"
AGAIN = "Prepare the data again, with the same `fastslow prepare` command as before."


@dataclass(frozen=True)
class Store:
    """A complete store: its list of graphs, and how they were prepared."""

    folder: Path
    graphs: pl.DataFrame  # one row per graph, with the columns of INDEX_SCHEMA
    preparation: dict[str, Any]
    # size and checksum, as `seal_file` returns them, of graphs.parquet and sample_submission.csv
    files: Mapping[str, Any] = field(default_factory=dict)
    # True: every byte was compared with its checksum, and nobody changes the store meanwhile
    is_checked: bool = False

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open a complete store. Raises InputError if there is none, or if it has another format,
        is unfinished or damaged."""
        record = _read_record(folder)
        if record["format"] != FORMAT:
            raise InputError(
                f"{folder}: has format {record['format']}, expected {FORMAT}. Prepare it again "
                "with `fastslow prepare DATA --out FOLDER --replace`."
            )
        if "files" not in record:
            raise InputError(
                f"{folder}: its preparation was stopped. Finish it with the same "
                "`fastslow prepare` command as before."
            )
        graphs = _read_index(folder / INDEX, record["files"])
        return cls(folder, graphs, record["preparation"], record["files"])

    @property
    def sample_submission(self) -> Path | None:
        """The copy of the data's sample_submission.csv, if any; InputError if it is damaged."""
        if SAMPLE_SUBMISSION not in self.files:
            return None
        path = self.folder / SAMPLE_SUBMISSION
        read_as_sealed(path, self.files)
        return path

    @property
    def size(self) -> int:
        """The total bytes of the graphs' files."""
        return sum(path.stat().st_size for path in self.paths())

    def paths(self) -> list[Path]:
        """Return the paths of the graphs' files, in the order of `graphs`."""
        return self.paths_of(self.graphs)

    def seals(self) -> dict[Path, str]:
        """Return the checksum that each graph's file must have: {path: checksum}."""
        return dict(zip(self.paths(), self.graphs["checksum"], strict=True))

    def load(
        self, rows: pl.DataFrame, cache: GraphCache, preparation: Preparation = AS_IT_IS
    ) -> LazyGraphs:
        """Return the graphs of `rows` of the list of graphs, in their order; a graph is read when
        it is accessed. `cache` keeps graphs that were read; `preparation` prunes each graph."""
        read = partial(cache.read, preparation=preparation, is_checked=self.is_checked)
        files = zip(self.paths_of(rows), rows["checksum"], strict=True)
        return LazyGraphs([partial(read, path, seal=seal) for path, seal in files])

    def find_defects(self) -> list[str]:
        """Read every file of the store, and return a message for each damaged one."""
        files = [
            GraphFile(path, collection(name), split)
            for path, name, split in zip(
                self.paths(), self.graphs["collection"], self.graphs["split"], strict=True
            )
        ]
        check = partial(_find_defect, seals=self.seals())
        found = map_files(check, files, "Checking the store", worth_a_worker=BYTES_WORTH_A_WORKER)
        try:
            _ = self.sample_submission
        except InputError as error:
            found.append(str(error))
        return [defect for defect in found if defect is not None]

    def paths_of(self, rows: pl.DataFrame) -> list[Path]:
        """Return the paths of the graphs of the given `rows`, in their order."""
        keys = rows.select("collection", "split", "graph").iter_rows()
        return [graph_path(self.folder, *key) for key in keys]


def is_store(folder: Path) -> bool:
    """Return whether the folder contains a store, finished or not."""
    return (folder / RECORD).is_file()


def graph_path(folder: Path, collection_name: str, split: str, graph: str) -> Path:
    """Return the path of a graph's file in the store."""
    return folder / GRAPHS / collection(collection_name).folder / split / f"{graph}{SUFFIX}"


def read_store_record(folder: Path) -> dict[str, Any]:
    """Return the format and the preparation of a store, finished or not; InputError if none."""
    record = _read_record(folder)
    return {"format": record["format"], "preparation": record["preparation"]}


def seal_file(content: bytes) -> dict[str, Any]:
    """Return the size and the checksum of a file with this content, as store.json records them."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_as_sealed(path: Path, files: Mapping[str, Any]) -> bytes:
    """Return the content of one of the store's files. Raises InputError if its size or checksum
    differs from the record `files` (see Store.files)."""
    try:
        with open_regular(path) as file:
            is_sized = os.fstat(file.fileno()).st_size == files[path.name]["bytes"]
            content = file.read() if is_sized else b""
    except (FileNotFoundError, TypeError, LookupError) as error:
        raise InputError(f"{path}: there is no such file of the store. {AGAIN}") from error
    if not is_sized or seal_file(content) != files[path.name]:
        raise InputError(f"{path}: is not what was written. {AGAIN}")
    return content


def _find_defect(file: GraphFile, *, seals: Mapping[Path, str]) -> str | None:
    try:
        check_prepared(file.path, seals[file.path])
        read_prepared(file.path, is_checked=True)  # raises if the arrays do not form a graph
    except InputError as error:
        return str(error)
    return None


def _read_record(folder: Path) -> dict[str, Any]:
    path, expected = folder / RECORD, "the record of a store"
    advice = f"Delete {folder} and prepare the data again, or choose another folder."
    try:
        record = read_json(path, expected)
        if record.get("format") == FORMAT:  # do not verify other formats, which may lack a checksum
            record = read_sealed(path, expected)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder}: there is no store here. Make one with `fastslow prepare`."
        ) from error
    except InputError as error:
        raise InputError(f"{error} {advice}") from error
    kinds = {"format": int, "preparation": dict, "files": dict}
    wrong = [name for name, kind in kinds.items() if type(record.get(name, kind())) is not kind]
    missing = {"format", "preparation"} - record.keys()
    if wrong or missing:
        names = ", ".join([*wrong, *sorted(missing)])
        raise InputError(f"{path}: expected {expected}, but it has no valid {names}. {advice}")
    return record


def _read_index(path: Path, files: Mapping[str, Any]) -> pl.DataFrame:
    content = read_as_sealed(path, files)
    with reading(path, "the list of graphs"):
        rows = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
        # reject too many rows, because a few compressed bytes could unpack to any number of them
        if rows * SEAL_BYTES > len(content):
            raise InputError(
                f"{path}: expected the list of graphs, but {rows:,} rows cannot fit into "
                f"{len(content):,} bytes. {AGAIN}"
            )
        # Earlier versions wrote no column label_source, because all labels were measured runtimes.
        graphs = pl.read_parquet(io.BytesIO(content)).match_to_schema(
            INDEX_SCHEMA, missing_columns={"label_source": pl.lit(TIMED)}
        )
    known = (
        pl.col("collection").is_in(NAMES)
        & pl.col("split").is_in(SPLITS)
        & ~pl.col("graph").str.contains("[/\0]")  # the name becomes part of a path
    )
    complete = pl.all_horizontal(pl.exclude("spread", "noise").is_not_null())
    if not graphs.select((known & complete).all()).item():
        raise InputError(
            f"{path}: expected the list of graphs, found an unknown collection, split or name of a "
            f"graph, or a missing value. {AGAIN}"
        )
    return graphs


def check_preparation(
    preparation: Mapping[str, Any], needed: int | None, store: Path, asker: str = "an experiment"
) -> None:
    """Raise InputError unless the `store` was prepared in the way that a ranker needs. This means:
    by this version of the preparation, without options that only a model may apply to its input,
    and with all nodes within `needed` edges (hops) of the configurable nodes (None: all nodes).
    `asker`: the experiment that needs them."""
    kept = preparation.get("hops", 0)
    is_number = kept is None or (type(kept) is int and kept > 0)
    if {**preparation, "hops": kept} != {"version": VERSION, "hops": kept} or not is_number:
        raise InputError(
            f"{store}: was prepared as {dict(preparation)}, expected version {VERSION} and a "
            "positive number of hops or null. Prepare the data again."
        )
    if kept is not None and (needed is None or kept < needed):
        wanted = "all nodes (without --hops)" if needed is None else f"--hops {needed}"
        raise InputError(
            f"{store}: keeps {count(kept, 'hop')} around the configurable nodes, but {asker} "
            f"looks further. Prepare the data with {wanted}, or leave {asker} out."
        )


def name_kind(graph: Graph) -> str:
    """Return the kind of a layout graph's configurations, such as "compile options (cpu)"."""
    if graph.options is None:
        return LAYOUTS
    targets = {(*options,): target for target, options in OPTION_SETS.items()}
    return f"compile options ({targets[graph.option_names]})"


def find_mixed(graphs: Iterable[tuple[str, str, str | Path]]) -> list[str]:
    """Return a sentence for each collection whose graphs have several kinds of configurations.

    A configuration sets layouts, or the compile options of one target. The feature tables of these
    kinds have different columns, so no model can learn from graphs of several kinds, or rank them,
    together.

    Args:
        graphs: the collection, the kind (see name_kind) and the file or name of each layout graph.
    """
    named: dict[str, dict[str, list[str | Path]]] = {}
    for key, kind, name in graphs:
        named.setdefault(key, {}).setdefault(kind, []).append(name)
    return [f"{key}: {_describe(kinds)}" for key, kinds in named.items() if len(kinds) > 1]


def _describe(kinds: dict[str, list[str | Path]]) -> str:
    found = "; ".join(
        f"{len(names):,} with {kind}: {join_names(names, MOST_NAMED)}"
        for kind, names in kinds.items()
    )
    return (
        f"expected graphs that are configured in one way, found {found}. A model learns from one "
        "kind of them: move the files of the others to another folder."
    )


def find_mixed_in_store(store: Store, rows: pl.DataFrame) -> list[str]:
    """Return a sentence for each layout collection whose graphs are configured in several ways.
    `rows` are rows of the store's list of graphs; see find_mixed."""
    layouts = rows.filter(pl.col("collection").str.starts_with("layout"))
    keys = layouts.select("collection", "split", "graph").iter_rows()
    paths = store.paths_of(layouts)
    return find_mixed(
        (key, name_kind(read_prepared(path, is_checked=True)), f"{split}/{graph}")
        for (key, split, graph), path in zip(keys, paths, strict=True)
    )
