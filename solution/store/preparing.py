"""Prepare the graphs of a folder into a store with one worker process per core.

A preparation that was stopped continues with the graphs that are not prepared yet.
"""

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from solution.data.folders import GraphFile
from solution.data.npz import fingerprint
from solution.data.parallel_files import map_files
from solution.data.summaries import Summary, join_defects, read_labelled, summarise
from solution.domain.collection import SAMPLE_SUBMISSION
from solution.domain.graph import TIMED
from solution.features.preparation import Preparation
from solution.store.graph_file import SUFFIX, check_prepared, write_prepared
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
    seal_file,
)
from solution.system.errors import InputError
from solution.system.files import (
    TEMPORARY,
    check_writable,
    locked,
    remove,
    remove_leftovers,
    write_bytes,
    write_sealed,
)
from solution.system.refusals import name_full_disk
from solution.system.wording import count

OTHERWISE = (
    "Choose another folder (--out; with `fastslow run`: --store), or prepare everything again with "
    "`fastslow prepare DATA --out FOLDER --replace`."
)
SUMMARY = TypeAdapter(Summary)
TIMED_LABELS = ("label_source", TIMED)  # a summary's default entry, which no record contains


def prepare_store(
    files: Sequence[GraphFile],
    folder: Path,
    preparation: Preparation,
    sample_submission: Path | None = None,
    *,
    workers: int | None = None,
    replace: bool = False,
    rebuild: bool = False,
) -> Store:
    """Prepare the graphs that are not prepared yet, and return the complete store.

    Args:
        preparation: how graphs are prepared; the store records its settings.
        sample_submission: the competition's file sample_submission.csv, which is copied into the
            store; None if there is none.
        workers: number of processes; by default one per core.
        replace: prepare everything again.
        rebuild: prepare everything again if the existing store has another format or preparation.

    Raises:
        InputError: a file is defective (the message lists the defects); the folder contains other
            files, or a store with another preparation or from other files; it cannot be written; or
            the disk is full. Finished graphs stay, and the same call continues from there.
    """
    wanted = {"format": FORMAT, "preparation": preparation.describe()}
    replace = replace or (rebuild and is_store(folder) and read_store_record(folder) != wanted)
    _check_folder(folder, wanted, replace=replace)
    seals: dict[Path, str] = {}
    if not replace:
        _check_no_others(folder, files)
        store = _open_sound(folder)
        if store is not None and _is_up_to_date(store, files, sample_submission):
            return store
        seals = {} if store is None else store.seals()
    if not folder.is_dir():
        check_writable(folder)
    with name_full_disk(folder):  # if the disk is full, the finished graphs stay
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "Wait for it, or choose another folder."):
            _begin(folder, wanted, replace=replace)
            prepare_file = partial(
                _prepare_file, folder=folder, preparation=preparation, seals=seals
            )
            try:
                rows = map_files(prepare_file, files, "Preparing", workers)
                _finish(folder, wanted, rows, sample_submission)
            finally:  # workers that were killed leave temporary files
                remove_leftovers(folder, [f"{GRAPHS}/**"])
    return Store.open(folder)


def _open_sound(folder: Path) -> Store | None:
    """Return the store in the folder; None if it is unfinished or damaged and must be prepared."""
    try:
        return Store.open(folder)
    except InputError:
        return None


def _finish(
    folder: Path,
    wanted: dict[str, Any],
    rows: Sequence[dict[str, Any] | str],
    sample_submission: Path | None,
) -> None:
    """Write the list of graphs and the copy of the sample submission, then store.json.

    store.json contains the checksums of the other two files. If some of `rows` are messages about
    defects (text) instead of rows, raise InputError with these messages.
    """
    if defects := [row for row in rows if isinstance(row, str)]:
        raise InputError(join_defects(defects))
    contents = {}
    if sample_submission is not None:
        contents[SAMPLE_SUBMISSION] = sample_submission.read_bytes()
    index = io.BytesIO()  # in memory, because polars raises no OSError if the disk is full
    pl.DataFrame(rows, schema=INDEX_SCHEMA).write_parquet(index)
    contents[INDEX] = index.getvalue()
    remove(folder / SAMPLE_SUBMISSION)
    for name, content in contents.items():
        write_bytes(content, folder / name)
    files = {name: seal_file(content) for name, content in contents.items()}
    write_sealed({**wanted, "files": files}, folder / RECORD)


def _prepare_file(
    file: GraphFile, *, folder: Path, preparation: Preparation, seals: Mapping[Path, str]
) -> dict[str, Any] | str:
    """Write the prepared graph unless an undamaged one exists. Return the graph's row in the list
    of graphs, or a message about a defect of the file. `seals`: {path of a graph that was prepared
    before: its checksum}."""
    try:
        target = graph_path(folder, file.collection.name, file.split, file.name)
        source = fingerprint(file.path)
        row = _find_finished(target, seals.get(target), preparation)
        row = row or _write_graph(file, target, preparation, source)
        return _changed(file, folder) if row["source"] != source else row
    except InputError as error:
        return str(error)


def _find_finished(path: Path, seal: str | None, preparation: Preparation) -> dict[str, Any] | None:
    """Return the row, in the list of graphs, of a graph that was prepared before.

    Return None if the graph must be prepared again, because its file is missing or damaged, or was
    prepared with other settings.

    Args:
        seal: the checksum of the file in the list of graphs; None if there is no list.
    """
    try:
        found, record = check_prepared(path, seal)
        summary = SUMMARY.validate_json(json.dumps(record["summary"]), strict=True)
        if record["preparation"] != preparation.describe():
            return None
        return {**dataclasses.asdict(summary), "source": record["source"], "checksum": found}
    except (InputError, ValueError, LookupError):
        return None


def _write_graph(
    file: GraphFile, target: Path, preparation: Preparation, source: str
) -> dict[str, Any]:
    graph = read_labelled(file)
    summary = dataclasses.asdict(summarise(graph, file.split))
    # leave out the default TIMED, so that records equal those of versions without label sources
    kept = {name: value for name, value in summary.items() if (name, value) != TIMED_LABELS}
    record = {
        "split": file.split,
        "source": source,
        "preparation": preparation.describe(),
        "summary": kept,
    }
    if file.split == "test":  # labels of the test split are dropped, even if the file has them
        graph = dataclasses.replace(graph, runtimes=None)
    seal = write_prepared(preparation(graph), record, target)
    if fingerprint(file.path) != source:
        remove(target)
        raise InputError(f"{file.path}: was changed while it was read. Start again.")
    return {**summary, "source": source, "checksum": seal}


def _changed(file: GraphFile, folder: Path) -> str:
    return f"{file.path}: is not the file that was prepared in {folder}. {OTHERWISE}"


def _check_folder(folder: Path, wanted: dict[str, Any], *, replace: bool) -> None:
    """Raise InputError if the folder has other files, or a store with another preparation."""
    if not is_store(folder):
        others = folder.is_file() or (
            folder.is_dir() and any(not p.name.startswith(TEMPORARY) for p in folder.iterdir())
        )
        if others:
            raise InputError(
                f"{folder}: expected an empty folder or a store, found other files. Choose another."
            )
        return
    # raises if the record is unreadable, so a folder that may not be a store is never emptied
    found = read_store_record(folder)
    if found != wanted and not replace:
        raise InputError(
            f"{folder}: is a store that was prepared differently ("
            + "; ".join(
                f"{name}: {old.get(name)}, now {new.get(name)}"
                for old, new in ((found, wanted), (found["preparation"], wanted["preparation"]))
                for name in {**old, **new}
                if name != "preparation" and old.get(name) != new.get(name)
            )
            + f"). {OTHERWISE}"
        )


def _begin(folder: Path, wanted: dict[str, Any], *, replace: bool) -> None:
    if replace:
        # Remove the record last: as long as it exists, the folder is recognised as a store.
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RECORD):
            remove(path)
    remove_leftovers(folder, [f"{GRAPHS}/**"])
    remove(folder / INDEX)
    write_sealed(wanted, folder / RECORD)


def _is_up_to_date(
    store: Store, files: Sequence[GraphFile], sample_submission: Path | None
) -> bool:
    """Return whether the store is undamaged and has exactly these files as its sources. Raises
    InputError if a file has changed since it was prepared."""
    sources = dict(zip(store.paths(), store.graphs["source"], strict=True))
    found = {graph_path(store.folder, f.collection.name, f.split, f.name): f for f in files}
    if sources.keys() != found.keys() or not all(path.is_file() for path in found):
        return False
    changed = [file for path, file in found.items() if fingerprint(file.path) != sources[path]]
    if changed:
        raise InputError(join_defects([_changed(file, store.folder) for file in changed]))
    given = None if sample_submission is None else seal_file(sample_submission.read_bytes())
    return store.files.get(SAMPLE_SUBMISSION) == given and not store.find_defects()


def count_prepared(folder: Path) -> int:
    """Return the number of graphs in a store, which may be incomplete; 0 if there is none."""
    return len(_list_prepared(folder))


def _list_prepared(folder: Path) -> set[Path]:
    return set((folder / GRAPHS).rglob(f"*{SUFFIX}"))


def _check_no_others(folder: Path, files: Sequence[GraphFile]) -> None:
    wanted = {graph_path(folder, f.collection.name, f.split, f.name) for f in files}
    others = sorted(_list_prepared(folder) - wanted)
    if others:
        raise InputError(
            f"{folder}: holds {count(len(others), 'graph')} not in the data, such as "
            f"{others[0]}. {OTHERWISE}"
        )
