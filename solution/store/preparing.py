"""Prepare every graph of a folder into a store, one worker process a core; stopped, it goes on."""

import dataclasses
import errno
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from solution.data.folders import GraphFile
from solution.data.inflate import Advance
from solution.data.npz import fingerprint
from solution.data.parallel_files import map_files
from solution.data.scan import join_defects, read_labelled, summarise
from solution.domain.collection import SAMPLE_SUBMISSION
from solution.domain.graph import Graph
from solution.store.graph_file import SUFFIX, read_record, write_prepared
from solution.store.store import (
    FORMAT,
    GRAPHS,
    INDEX,
    INDEX_SCHEMA,
    RECORD,
    Store,
    graph_path,
    is_store,
    read_store_record,
)
from solution.system.errors import InputError
from solution.system.files import (
    TEMPORARY,
    checksum,
    locked,
    remove,
    remove_leftovers,
    replace_file,
    write_json,
)

OTHERWISE = (
    "Choose another folder (--out; with `fastslow run`: --store), or prepare everything again with "
    "`fastslow prepare DATA --out FOLDER --replace`."
)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class GraphPreparation(Protocol):
    """What is done to a graph; it must be found by other processes."""

    def __call__(self, graph: Graph) -> Graph: ...

    def describe(self) -> dict[str, Any]: ...


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
    replace = replace or (rebuild and is_store(folder) and read_store_record(folder) != wanted)
    _check_folder(folder, wanted, replace=replace)
    if not replace:
        _check_no_others(folder, files)
        finished = (folder / INDEX).is_file()
        if finished and _is_up_to_date(Store.open(folder), files, sample_submission):
            return Store.open(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "Wait for it, or choose another folder."):
            _begin(folder, wanted, replace=replace)
            try:
                _prepare_all(files, folder, preparation, sample_submission, workers)
            finally:  # workers that were ended leave what they were writing
                remove_leftovers(folder)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise InputError(
                f"{folder}: {error.strerror}. What is finished is kept: make room, and start the "
                "same command again."
            ) from error
        raise
    return Store.open(folder)


def _prepare_all(
    files: Sequence[GraphFile],
    folder: Path,
    preparation: GraphPreparation,
    sample_submission: Path | None,
    workers: int | None,
) -> None:
    prepare_file = partial(_prepare_file, folder=folder, preparation=preparation)
    rows = map_files(prepare_file, files, "Preparing", workers)
    if defects := [row for row in rows if isinstance(row, str)]:
        raise InputError(join_defects(defects))
    remove(folder / SAMPLE_SUBMISSION)
    if sample_submission is not None:
        with replace_file(folder / SAMPLE_SUBMISSION) as temporary:
            temporary.write_bytes(sample_submission.read_bytes())
    index = io.BytesIO()  # polars has errors of its own for a disk that is full
    pl.DataFrame(rows, schema=INDEX_SCHEMA).write_parquet(index)
    with replace_file(folder / INDEX) as temporary:
        temporary.write_bytes(index.getvalue())


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
        return {**record["summary"], "source": source, "checksum": checksum(target)}
    except InputError as error:
        return str(error)


def _changed(file: GraphFile, folder: Path) -> str:
    return f"{file.path}: is not the file that was prepared in {folder}. {OTHERWISE}"


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
        return
    found = read_store_record(folder)  # what cannot be read is not ours, and never emptied
    if found != wanted and not replace:
        raise InputError(f"{folder}: was made as {found}, now {wanted} is wanted. {OTHERWISE}")


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
    samples = (store.sample_submission, sample_submission)
    kept, given = (path and path.read_bytes() for path in samples)
    return kept == given


def _check_no_others(folder: Path, files: Sequence[GraphFile]) -> None:
    wanted = {graph_path(folder, f.collection.name, f.split, f.name) for f in files}
    others = sorted(set((folder / GRAPHS).rglob(f"*{SUFFIX}")) - wanted)
    if others:
        raise InputError(
            f"{folder}: holds {len(others)} graph(s) that are not in the data, such as "
            f"{others[0]}. {OTHERWISE}"
        )
