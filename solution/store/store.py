"""The prepared store: every graph repaired, pruned and encoded once, then mapped, never inflated.

    STORE/
        store.json           the format, and how the graphs were prepared; written first
        graphs/layout/xla/random/train/NAME.safetensors   one file a graph, each written atomically
        sample_submission.csv                             a copy, where one lay with the data
        graphs.parquet       a row a graph: sizes, statistics, checksums; written last

A preparation that was killed goes on where it was and ends with the same bytes. A store that was
made in another format, in another way or from files that have changed is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from solution.data.folders import GraphFile
from solution.data.inflate import Advance
from solution.data.parallel_files import map_files
from solution.data.scan import SCHEMA
from solution.domain.collection import SAMPLE_SUBMISSION, collection
from solution.store.graph_file import SUFFIX, read_prepared
from solution.system.errors import InputError
from solution.system.files import checksum

FORMAT = 1
RECORD, INDEX, GRAPHS = "store.json", "graphs.parquet", "graphs"
# source: of what is in the npz file; checksum: of the prepared file.
INDEX_SCHEMA = pl.Schema({**SCHEMA, "source": pl.String(), "checksum": pl.String()})


@dataclass(frozen=True)
class Store:
    """A complete store."""

    folder: Path
    graphs: pl.DataFrame  # of INDEX_SCHEMA
    preparation: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open a store that is complete.

        Raises InputError where there is none, or it has another format, or it is unfinished.
        """
        record = read_store_record(folder)
        if record["format"] != FORMAT:
            raise InputError(
                f"{folder}: has format {record['format']}, expected {FORMAT}. Prepare it again "
                "with `fastslow prepare DATA --out FOLDER --replace`."
            )
        index = folder / INDEX
        if not index.is_file():
            raise InputError(
                f"{folder}: its preparation was stopped. Finish it with the same "
                "`fastslow prepare` command as before."
            )
        try:
            graphs = pl.read_parquet(index).match_to_schema(INDEX_SCHEMA)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(f"{index}: expected the list of graphs, but: {error}") from error
        return cls(folder, graphs, record["preparation"])

    @property
    def sample_submission(self) -> Path | None:
        """The sample_submission.csv that lay with the data."""
        path = self.folder / SAMPLE_SUBMISSION
        return path if path.is_file() else None

    @property
    def size(self) -> int:
        """Bytes of the graphs' files."""
        return sum(path.stat().st_size for path in self.paths())

    def paths(self) -> list[Path]:
        """The graphs' files, in the order of the rows."""
        rows = self.graphs.select("collection", "split", "graph").iter_rows()
        return [graph_path(self.folder, *row) for row in rows]

    def find_defects(self) -> list[str]:
        """Read every file: a message for each that is not what was written."""
        files = [
            GraphFile(path, collection(name), split)
            for path, name, split in zip(
                self.paths(), self.graphs["collection"], self.graphs["split"], strict=True
            )
        ]
        expected = dict(zip(self.paths(), self.graphs["checksum"], strict=True))
        found = map_files(partial(_find_defect, expected=expected), files, "Checking the store")
        return [defect for defect in found if defect is not None]


def is_store(folder: Path) -> bool:
    """Whether a store was begun in the folder."""
    return (folder / RECORD).is_file()


def read_preparation(folder: Path) -> dict[str, Any]:
    """How the store in `folder`, finished or not, is prepared; InputError where there is none."""
    preparation: dict[str, Any] = read_store_record(folder)["preparation"]
    return preparation


def graph_path(folder: Path, collection_name: str, split: str, graph: str) -> Path:
    """Where a store has the graph."""
    return folder / GRAPHS / collection(collection_name).folder / split / f"{graph}{SUFFIX}"


def _find_defect(file: GraphFile, advance: Advance, *, expected: Mapping[Path, str]) -> str | None:
    try:
        read_prepared(file.path)
    except InputError as error:
        return str(error)
    if checksum(file.path) == expected[file.path]:
        return None
    return f"{file.path}: is not what was written. Delete it, and prepare the data again."


def read_store_record(folder: Path) -> dict[str, Any]:
    """The format and the preparation of a store; InputError where there is none."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {"format": record["format"], "preparation": dict(record["preparation"])}
    except FileNotFoundError as error:
        raise InputError(
            f"{folder}: there is no store here. Make one with `fastslow prepare`."
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: expected the record of a store, but: {error}.") from error
