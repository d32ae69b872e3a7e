"""The prepared store: every graph repaired, pruned and encoded once, then mapped, never inflated.

    STORE/
        store.json           the format, and how the graphs were prepared; written first, and once
                             more last, with the checksums of the two files below
        graphs/layout/xla/random/train/NAME.safetensors   one file a graph, each written atomically
        sample_submission.csv                             a copy, where one lay with the data
        graphs.parquet       a row a graph: sizes, statistics, the seal of its file

A preparation that was killed goes on where it was and ends with the same bytes. A store that was
made in another format, in another way or from files that have changed is refused. Every byte is
sealed: store.json by a checksum of itself, all the rest by what stands in it. Readers compare, and
what is not as it was written is made again by `fastslow prepare`.
"""

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from solution.data.folders import GraphFile
from solution.data.inflate import Advance
from solution.data.parallel_files import map_files
from solution.data.scan import SCHEMA
from solution.domain.collection import NAMES, SAMPLE_SUBMISSION, SPLITS, collection
from solution.domain.labels import TIMED
from solution.features.preparation import Preparation
from solution.store.graph_file import SUFFIX, check_prepared, read_prepared
from solution.store.lazy_graphs import AS_IT_IS, GraphCache, LazyGraphs
from solution.system.errors import InputError
from solution.system.files import open_regular, read_json, read_sealed
from solution.system.parquet import reading

FORMAT = 2
RECORD, INDEX, GRAPHS = "store.json", "graphs.parquet", "graphs"
# source: of what is in the npz file; checksum: the seal of the prepared file.
INDEX_SCHEMA = pl.Schema({**SCHEMA, "source": pl.String(), "checksum": pl.String()})
SEAL_BYTES = 32  # no row of the list takes less
BYTES_WORTH_A_WORKER = 1 << 29  # that are read and compared
AGAIN = "Prepare the data again, with the same `fastslow prepare` command as before."


@dataclass(frozen=True)
class Store:
    """A complete store."""

    folder: Path
    graphs: pl.DataFrame  # of INDEX_SCHEMA
    preparation: dict[str, Any]
    # By name, what `seal_file` says of the list and the sample submission.
    files: Mapping[str, Any] = field(default_factory=dict)
    is_checked: bool = False  # every byte was compared, and nobody changes it meanwhile

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open a store that is complete.

        Raises InputError where there is none, it has another format, is unfinished or damaged.
        """
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
        """The sample_submission.csv that lay with the data; InputError where it is damaged."""
        if SAMPLE_SUBMISSION not in self.files:
            return None
        path = self.folder / SAMPLE_SUBMISSION
        read_as_sealed(path, self.files)
        return path

    @property
    def size(self) -> int:
        """Bytes of the graphs' files."""
        return sum(path.stat().st_size for path in self.paths())

    def paths(self) -> list[Path]:
        """The graphs' files, in the order of the rows."""
        return self.paths_of(self.graphs)

    def seals(self) -> dict[Path, str]:
        """What each graph's file must have."""
        return dict(zip(self.paths(), self.graphs["checksum"], strict=True))

    def load(
        self, rows: pl.DataFrame, cache: GraphCache, preparation: Preparation = AS_IT_IS
    ) -> LazyGraphs:
        """The graphs of some of the rows, in their order, pruned as they are read."""
        seals = rows["checksum"].to_list()
        paths = self.paths_of(rows)
        return LazyGraphs(paths, cache, preparation, seals, is_checked=self.is_checked)

    def find_defects(self) -> list[str]:
        """Read every file: a message for each that is not what was written."""
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
        """The files of some of the rows, in their order."""
        keys = rows.select("collection", "split", "graph").iter_rows()
        return [graph_path(self.folder, *key) for key in keys]


def is_store(folder: Path) -> bool:
    """Whether a store was begun in the folder."""
    return (folder / RECORD).is_file()


def read_preparation(folder: Path) -> dict[str, Any]:
    """How the store in `folder`, finished or not, is prepared; InputError where there is none."""
    preparation: dict[str, Any] = _read_record(folder)["preparation"]
    return preparation


def graph_path(folder: Path, collection_name: str, split: str, graph: str) -> Path:
    """Where a store has the graph."""
    return folder / GRAPHS / collection(collection_name).folder / split / f"{graph}{SUFFIX}"


def read_store_record(folder: Path) -> dict[str, Any]:
    """The format and the preparation of a store; InputError where there is none."""
    record = _read_record(folder)
    return {"format": record["format"], "preparation": record["preparation"]}


def seal_file(content: bytes) -> dict[str, Any]:
    """What store.json says of a file with this content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_as_sealed(path: Path, files: Mapping[str, Any]) -> bytes:
    """What is in the file; InputError where `files` says otherwise."""
    try:
        with open_regular(path) as file:
            is_sized = os.fstat(file.fileno()).st_size == files[path.name]["bytes"]
            content = file.read() if is_sized else b""
    except (FileNotFoundError, TypeError, LookupError) as error:
        raise InputError(f"{path}: there is no such file of the store. {AGAIN}") from error
    if not is_sized or seal_file(content) != files[path.name]:
        raise InputError(f"{path}: is not what was written. {AGAIN}")
    return content


def _find_defect(file: GraphFile, advance: Advance, *, seals: Mapping[Path, str]) -> str | None:
    try:
        check_prepared(file.path, seals[file.path])
        read_prepared(file.path, is_checked=True)  # is it a graph, too?
    except InputError as error:
        return str(error)
    return None


def _read_record(folder: Path) -> dict[str, Any]:
    path, expected = folder / RECORD, "the record of a store"
    advice = f"Delete {folder} and prepare the data again, or choose another folder."
    try:
        record = read_json(path, expected)
        if record.get("format") == FORMAT:  # others may have no seal
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
        raise InputError(f"{path}: expected {expected}, but not with such {names}. {advice}")
    return record


def _read_index(path: Path, files: Mapping[str, Any]) -> pl.DataFrame:
    content = read_as_sealed(path, files)
    with reading(path, "the list of graphs"):
        rows = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
        if rows * SEAL_BYTES > len(content):  # a few bytes may stand for any number of rows
            raise InputError(f"{path}: expected the list of graphs, but {rows:,} rows. {AGAIN}")
        # An index that was written before there were estimates has labels of clocks alone.
        graphs = pl.read_parquet(io.BytesIO(content)).match_to_schema(
            INDEX_SCHEMA, missing_columns={"label_source": pl.lit(TIMED)}
        )
    known = (
        pl.col("collection").is_in(NAMES)
        & pl.col("split").is_in(SPLITS)
        & ~pl.col("graph").str.contains("[/\0]")  # it becomes the name of a file
    )
    complete = pl.all_horizontal(pl.exclude("spread", "noise").is_not_null())
    if not graphs.select((known & complete).all()).item():
        raise InputError(f"{path}: expected the list of graphs, but it names others. {AGAIN}")
    return graphs
