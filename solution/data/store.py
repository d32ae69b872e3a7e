"""The prepared store: every graph repaired, pruned and encoded once, then mapped, never inflated.

    STORE/
        store.json           the format, and how the graphs were prepared; written first
        graphs/layout/xla/random/train/NAME.safetensors   one file a graph, each written atomically
        sample_submission.csv                             a copy, where one lay with the data
        graphs.parquet       a row a graph: sizes, statistics, checksums; written last

A preparation that was killed goes on where it was and ends with the same bytes. A store that was
made in another format, in another way or from files that have changed is refused.
"""

import dataclasses
import errno
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from solution.collection import collection
from solution.data.folders import GraphFile
from solution.data.inflate import Advance
from solution.data.npz import fingerprint
from solution.data.prepared import SUFFIX, read_prepared, read_record, write_prepared
from solution.data.scan import SCHEMA, join_defects, read_labelled, summarise
from solution.data.workers import map_files
from solution.errors import InputError
from solution.files import TEMPORARY, locked, remove, remove_leftovers, replace_file, write_json
from solution.graph import Graph
from solution.runs import SAMPLE_SUBMISSION

FORMAT = 1
RECORD, INDEX, GRAPHS = "store.json", "graphs.parquet", "graphs"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# source: of what is in the npz file; checksum: of the prepared file.
INDEX_SCHEMA = pl.Schema({**SCHEMA, "source": pl.String(), "checksum": pl.String()})


class GraphPreparation(Protocol):
    """What is done to a graph; it must be found by other processes."""

    def __call__(self, graph: Graph) -> Graph: ...

    def describe(self) -> dict[str, Any]: ...


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
        record = _read_record(folder)
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


def graph_path(folder: Path, collection_name: str, split: str, graph: str) -> Path:
    """Where a store has the graph."""
    return folder / GRAPHS / collection(collection_name).folder / split / f"{graph}{SUFFIX}"


def prepare_store(
    files: Sequence[GraphFile],
    folder: Path,
    preparation: GraphPreparation,
    sample_submission: Path | None = None,
    *,
    workers: int | None = None,
    replace: bool = False,
    rebuild: bool = False,
) -> Store:
    """Prepare what is not prepared yet, and return the complete store.

    Args:
        workers: processes; by default one per core.
        replace: prepare everything again.
        rebuild: prepare everything again where the store there was made in another way.

    Raises:
        InputError: with every file's defect; where the folder holds something else, or a store
            that was made differently or from other files; where the disk is full. What is finished
            stays, and the same call goes on from there.
    """
    wanted = {"format": FORMAT, "preparation": preparation.describe()}
    replace = replace or (rebuild and is_store(folder) and _read_record(folder) != wanted)
    _check_folder(folder, wanted, replace=replace)
    if not replace:
        _check_no_others(folder, files)
        if (folder / INDEX).is_file() and _is_up_to_date(
            Store.open(folder), files, sample_submission
        ):
            return Store.open(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "Wait for it, or choose another folder."):
            _begin(folder, wanted, replace=replace)
            prepare_file = partial(_prepare_file, folder=folder, preparation=preparation)
            rows = map_files(prepare_file, files, "Preparing", workers)
            defects = [row for row in rows if isinstance(row, str)]
            if defects:
                raise InputError(join_defects(defects))
            remove(folder / SAMPLE_SUBMISSION)
            if sample_submission is not None:
                with replace_file(folder / SAMPLE_SUBMISSION) as temporary:
                    shutil.copyfile(sample_submission, temporary)
            with replace_file(folder / INDEX) as temporary:
                pl.DataFrame(rows, schema=INDEX_SCHEMA).write_parquet(temporary)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise InputError(
                f"{folder}: {error.strerror}. What is finished is kept: make room, and start the "
                "same command again."
            ) from error
        raise
    return Store.open(folder)


def _prepare_file(
    file: GraphFile, advance: Advance, *, folder: Path, preparation: GraphPreparation
) -> dict[str, Any] | str:
    """Write the prepared graph, if it is not there; its row, or what is wrong with it."""
    try:
        target = graph_path(folder, file.collection.name, file.split, file.name)
        source = fingerprint(file.path)
        if target.is_file():
            record = read_record(target)
            if record["source"] != source:
                return _changed(file, folder)
        else:
            graph = read_labelled(file, advance)
            summary = summarise(graph, file.split)
            record = {"source": source, "summary": dataclasses.asdict(summary)}
            if file.split == "test":  # unseen, even where somebody has the labels
                graph = dataclasses.replace(graph, runtimes=None)
            write_prepared(preparation(graph), record, target)
            if fingerprint(file.path) != source:
                remove(target)
                return f"{file.path}: was changed while it was read. Start again."
        return {**record["summary"], "source": source, "checksum": _checksum(target)}
    except InputError as error:
        return str(error)


def _changed(file: GraphFile, folder: Path) -> str:
    return (
        f"{file.path}: is not the file that was prepared in {folder}. Put the old one back, or "
        "prepare everything again with --replace."
    )


def _find_defect(file: GraphFile, advance: Advance, *, expected: Mapping[Path, str]) -> str | None:
    try:
        read_prepared(file.path)
    except InputError as error:
        return str(error)
    if _checksum(file.path) == expected[file.path]:
        return None
    return f"{file.path}: is not what was written. Delete it, and prepare the data again."


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_record(folder: Path) -> dict[str, Any]:
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


def _check_folder(folder: Path, wanted: dict[str, Any], *, replace: bool) -> None:
    """Refuse a folder that is not ours, and a store that was made differently."""
    if not is_store(folder):
        others = folder.is_file() or (
            folder.is_dir() and any(not p.name.startswith(TEMPORARY) for p in folder.iterdir())
        )
        if others:
            raise InputError(
                f"{folder}: expected an empty folder or a store, found other files. Choose another."
            )
    elif not replace and _read_record(folder) != wanted:
        raise InputError(
            f"{folder}: was made as {_read_record(folder)}, now {wanted} is wanted. Choose another "
            "folder, or prepare everything again with --replace."
        )


def _begin(folder: Path, wanted: dict[str, Any], *, replace: bool) -> None:
    if replace:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RECORD):
            remove(path)
    remove_leftovers(folder)
    remove(folder / INDEX)
    write_json(wanted, folder / RECORD)


def _is_up_to_date(
    store: Store, files: Sequence[GraphFile], sample_submission: Path | None
) -> bool:
    """Whether the store is whole and of exactly these files; InputError where one has changed."""
    sources = dict(zip(store.paths(), store.graphs["source"], strict=True))
    found = {graph_path(store.folder, f.collection.name, f.split, f.name): f for f in files}
    if sources.keys() != found.keys() or not all(path.is_file() for path in found):
        return False
    changed = [file for path, file in found.items() if fingerprint(file.path) != sources[path]]
    if changed:
        raise InputError(join_defects([_changed(file, store.folder) for file in changed]))
    kept, given = (
        None if path is None else path.read_bytes()
        for path in (store.sample_submission, sample_submission)
    )
    return kept == given


def _check_no_others(folder: Path, files: Sequence[GraphFile]) -> None:
    wanted = {graph_path(folder, f.collection.name, f.split, f.name) for f in files}
    others = sorted(set((folder / GRAPHS).rglob(f"*{SUFFIX}")) - wanted)
    if others:
        raise InputError(
            f"{folder}: holds {len(others)} graph(s) that are not in the data, such as "
            f"{others[0]}. Choose another folder, or prepare everything again with --replace."
        )
