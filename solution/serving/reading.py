"""The graphs that people have: npz files, modules of XLA, their text, prepared stores, folders."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from solution.data.folders import find_files, identify_file
from solution.data.hlo.messages import MESSAGES, read_records
from solution.data.hlo.records import make_records
from solution.data.npz import read_graph as read_npz
from solution.domain.collection import TILE
from solution.domain.collection import collection as find_collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_TILE_FEATURES
from solution.features.candidates import DEFAULT, NothingToChooseError, make_candidates
from solution.serving.calibration import Facts, describe_graph
from solution.store.graph_file import SUFFIX, read_prepared, read_record
from solution.system.errors import InputError

MOST = 1 << 60  # nodes, edges
NPZ, PROTOBUF = ".npz", (".pb", ".binpb")
REPORT = "-memory-usage-report.pb"  # what XLA dumps beside a module, and is none
TEXT = (".hlo", ".txt", ".mlir", ".stablehlo", ".py")  # what jax makes a module of


@dataclass(frozen=True, eq=False)
class Question:
    """A graph whose configurations are to be ranked."""

    graph: Graph
    facts: Facts  # of the whole program
    file: Path  # where it is described
    made: bool = False  # whether its configurations were made here


def read_questions(
    path: Path, collection: str | None = None, configs: int | None = None
) -> Iterator[Question]:
    """Every graph of a file, of a prepared store, or of a folder with npz files.

    In a folder, as XLA dumps one, a program in which nothing may be configured is left out with a
    warning.

    Args:
        collection: what graphs belong to, where the path does not say it.
        configs: make so many configurations; by default only for a program that has just one.

    Raises:
        InputError: there is nothing of the kind, it is no graph, or nothing may be configured.
    """
    is_empty = True
    for question in _read(path, collection):
        is_whole = question.facts == describe_graph(question.graph)
        if configs is not None and not is_whole:
            raise InputError(
                f"{path}: {question.graph.name} is pruned, and configurations are made for whole "
                "programs. Give the file that the store was prepared from."
            )
        if configs is not None or (question.graph.num_configs == 1 and is_whole):
            try:
                made = make_candidates(question.graph, DEFAULT if configs is None else configs)
            except NothingToChooseError:
                if not path.is_dir():
                    raise
                from solution.system.progress import warn  # takes long to import

                warn(f"{question.file}: left out, for nothing in it may be configured.")
                continue
            question = dataclasses.replace(question, graph=made, made=True)
        is_empty = False
        yield question
    if is_empty:
        raise InputError(f"{path}: holds no program in which anything may be configured.")


def read_graph(
    path: str | Path, collection: str | None = None, *, configs: int | None = None
) -> Graph:
    """The graph of a file: npz, a module of XLA, or one of a prepared store.

    Args:
        collection: such as layout:xla:random, where the path does not say it.
        configs: make so many configurations; by default only for a program that has just one.

    Raises:
        InputError: there is no such file, it is no graph, or it holds several.
    """
    return read_question(path, collection, configs=configs).graph


def read_question(
    path: str | Path, collection: str | None = None, *, configs: int | None = None
) -> Question:
    """As read_graph, and what is known of the whole program."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"expected a graph or the path of its file, found {type(path).__name__}")
    if not str(path):
        raise InputError("The path of the graph is empty. Name its file.")
    if collection is not None:
        find_collection(collection)
    if Path(path).is_dir():
        raise InputError(f"{path}: expected one file, found a folder. Name one in it.")
    found = list(read_questions(Path(path), collection, configs))
    if len(found) != 1:
        raise InputError(f"{path}: holds {len(found)} graphs, expected one. Rank it as a whole.")
    return found[0]


def _read(path: Path, collection: str | None) -> Iterator[Question]:
    if path.is_dir():
        yield from _read_folder(path, collection)
    elif path.suffix == SUFFIX:
        yield _read_prepared(path)
    elif path.suffix in PROTOBUF:
        yield from (_ask(graph, path) for graph in _read_modules(path, collection))
    elif path.suffix in TEXT:
        yield _ask(_read_text(path, collection), path)
    elif path.suffix == NPZ:
        found = identify_file(path, collection)
        yield _ask(read_npz(found.path, found.collection), path)
    else:
        raise InputError(
            f"{path}: expected a folder, a store or a file {NPZ}, {', '.join(PROTOBUF)}, "
            f"{', '.join(TEXT)}, found {path.suffix or 'none of these suffixes'}."
        )


def _read_folder(folder: Path, collection: str | None) -> Iterator[Question]:
    """A store's graphs; or its own npz files and modules; or npz files as the competition's lie."""
    from solution.store.store import Store, is_store  # takes long to import

    if is_store(folder):
        for file, seal in Store.open(folder).seals().items():
            yield _read_prepared(file, seal)
        return
    own = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (NPZ, *PROTOBUF) and not path.name.endswith(REPORT)
    )
    for path in own:
        yield from _read(path, collection)
    if not own:
        for found in find_files(folder):
            yield _ask(read_npz(found.path, found.collection), found.path)


def _read_modules(path: Path, collection: str | None) -> Iterator[Graph]:
    return _make_graphs(path, read_records(path), collection)


def _make_graphs(path: Path, messages: Sequence[Any], collection: str | None) -> Iterator[Graph]:
    """Of messages TuningRecord that were read from a file."""
    of_layouts = None if collection in TILE else collection
    for record in make_records(path, messages, of_layouts):
        yield _as_kernel(record.graph) if collection in TILE else record.graph


def _as_kernel(graph: Graph) -> Graph:
    """A module as a kernel whose tiles are still to be made; one with tiles as it is."""
    if graph.collection.name in TILE:
        return graph
    if graph.num_configs > 1:
        raise InputError(
            f"{graph.name}: has layouts, which no graph of {', '.join(TILE)} has. Leave "
            "--collection out."
        )
    return dataclasses.replace(
        graph,
        collection=find_collection(TILE[0]),
        configurable=np.empty(0, np.int64),
        configs=np.zeros((1, NUM_TILE_FEATURES), np.float32),
        options=None,
    )


def _read_text(path: Path, collection: str | None) -> Graph:
    """Text is read by XLA itself, in a process of its own: on a wrong one it may abort."""
    from solution.collecting.children import Child, Limits
    from solution.collecting.program import read_programs

    with Child(Limits()) as child:
        (program,) = read_programs(path, child)
    (graph,) = _make_graphs(path, [MESSAGES["TuningRecord"](module=program.module)], collection)
    return graph


def _ask(graph: Graph, file: Path) -> Question:
    return Question(graph, describe_graph(graph), file)


def _read_prepared(path: Path, seal: str | None = None) -> Question:
    """A store's graphs are pruned; what is compared of them is in their records."""
    graph, summary = read_prepared(path, seal), read_record(path).get("summary", {})
    try:
        counts = [_read_count(summary[name]) for name in ("nodes", "edges", "configurable")]
        facts = Facts(str(summary["architecture"]), *counts)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: lacks its summary. Prepare the data again.") from error
    return Question(graph, facts, path)


def _read_count(value: object) -> int:
    """Return the number; ValueError where it is none that a file can count."""
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"expected a number from 0 to {MOST}, found {str(value)[:50]}")
    return value
