"""Read graphs from users' files: npz, XLA modules and their text, stores, folders."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from solution.data.folders import find_files, identify_file, parse_path
from solution.data.npz import read_graph as read_npz
from solution.domain.collection import TILE, Collection
from solution.domain.collection import collection as find_collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_TILE_FEATURES
from solution.features.candidates import DEFAULT, NothingToChooseError, make_candidates
from solution.programs.child import Child, Limits
from solution.programs.forms import PROTOBUF as BINARY
from solution.programs.forms import find_form_of, has_module_begin
from solution.programs.hlo.messages import MESSAGES, read_records
from solution.programs.hlo.records import Record, make_records
from solution.programs.obstacles import describe_module
from solution.programs.program import Wanted, pick_modules, read_programs
from solution.serving.calibration import Facts, describe_graph
from solution.store.graph_file import SUFFIX, read_prepared, read_record
from solution.system.errors import InputError

MOST = 1 << 60  # maximum accepted number of nodes or edges
NPZ, PROTOBUF = ".npz", (".pb", ".binpb")
# ending of reports that XLA dumps beside modules; they are no modules
REPORT = "-memory-usage-report.pb"
TEXT = (".hlo", ".txt", ".mlir", ".stablehlo", ".py")
# suffixes of texts that are read from a folder; not .txt, because most such files are no programs,
# and not .py, because reading a .py file runs it
OF_FOLDERS = (".hlo", ".mlir", ".stablehlo")
NAMES_IN_FOLDERS = (*PROTOBUF, *OF_FOLDERS, "*before_optimizations.txt")
# endings of XLA's dumps of an unoptimised module, as text and as protobuf
DUMPED, AS_PROTO = "before_optimizations.txt", "before_optimizations.hlo.pb"


@dataclass(frozen=True, eq=False)
class Question:
    """A graph whose configurations are to be ranked."""

    graph: Graph
    facts: Facts  # sizes of the whole program
    file: Path  # the file that the graph was read from
    made: bool = False  # True if the graph's configurations were generated, not read from the file
    notes: tuple[str, ...] = ()  # sentences on which parts of the program are considered
    # the Module message from which the graph was made; None if the file holds a graph, no program
    module: Any = None


def read_questions(
    path: Path,
    collection: str | None = None,
    configs: int | None = None,
    wanted: Wanted | None = None,
) -> Iterator[Question]:
    """Yield every graph of a file, a prepared store, or a folder of npz files or dumps. Programs
    without anything to configure are skipped with a warning, if there are other programs.

    `collection`: the graphs' collection, if the path does not tell it; if the path tells another
    one, InputError. `configs`: number of
    configurations to generate (default: generate some only for a program that has a single one).
    `wanted`: which programs of a file. Raises InputError if there is no file or graph, or nothing
    to configure.
    """
    is_empty, left_out = True, []
    with _Reader(collection, wanted) as reader:
        for question in reader.read(path):
            try:
                yield _make_configs(question, configs, path)
                is_empty = False
            except NothingToChooseError as error:
                left_out.append((question.file, error))
    if is_empty and len(left_out) == 1 and not path.is_dir():
        raise NothingToChooseError(f"{path}: {left_out[0][1]}") from left_out[0][1]
    for file, _ in left_out:
        from solution.system.progress import warn  # imports rich, which is slow and rarely needed

        warn(f"{file}: left out, because nothing in it may be configured.")
    if is_empty:
        kind = NothingToChooseError if left_out else InputError
        raise kind(f"{path}: holds no program in which anything may be configured.")


def _make_configs(question: Question, configs: int | None, path: Path) -> Question:
    """Return the question with `configs` generated configurations. If `configs` is None, generate
    DEFAULT (a number) for an unpruned graph that has only one configuration, and leave any other
    graph as it is. Raises InputError if `configs` is given for a pruned graph."""
    graph = question.graph
    is_whole = question.facts == describe_graph(graph)
    if configs is not None and not is_whole:
        raise InputError(
            f"{path}: {graph.name} is pruned, and configurations are made for whole programs. Give "
            "the file that the store was prepared from."
        )
    if configs is None and not (graph.num_configs == 1 and is_whole):
        return question
    made = make_candidates(graph, DEFAULT if configs is None else configs)
    return dataclasses.replace(question, graph=made, made=True)


def read_graph(
    path: str | Path, collection: str | None = None, *, configs: int | None = None
) -> Graph:
    """Return the graph of a file: an npz file, an XLA module, or a prepared store's file. Arguments
    as in read_questions. Raises InputError if the file is missing or does not hold exactly one
    graph."""
    return read_question(path, collection, configs=configs).graph


def read_question(
    path: str | Path, collection: str | None = None, *, configs: int | None = None
) -> Question:
    """Return the graph of a file as read_graph does, together with the whole program's sizes."""
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


@dataclass(frozen=True, eq=False)
class Module:
    """A program of a file, with the configurations of its tuning record if it has one."""

    record: Record
    notes: tuple[str, ...]  # sentences on which parts of the program are considered


def read_modules(
    path: Path, collection: str | None = None, wanted: Wanted | None = None
) -> list[Module]:
    """Return the programs of a file in any form but npz, or of a folder's files; arguments as in
    read_questions. Raises InputError if there is no file, or no program in it."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder. Give a program's file.")
    files = [path]
    if path.is_dir():
        files = [file for file in list_programs(path) if file.suffix != NPZ]
    if not files:
        raise InputError(f"{path}: holds no program: expected files {', '.join(NAMES_IN_FOLDERS)}.")
    with _Reader(collection, wanted) as reader:
        return [module for file in files for module in reader.read_modules(file, collection)]


def check_collection(path: Path, given: str | None) -> None:
    """Raise InputError if the path of an npz file names another collection than the user gave."""
    named = parse_path(path)
    if named is not None:
        _check_same(path, named.collection, given)


def _check_same(path: Path, found: Collection, given: str | None) -> None:
    if given is not None and find_collection(given) != found:
        raise InputError(
            f"{path}: is of the collection {found.name}, and --collection says {given}. Leave "
            f"--collection out, or give graphs of {given}."
        )


def list_programs(folder: Path) -> list[Path]:
    """Return the files of graphs and programs directly in a folder, sorted by name."""
    return [path for path in sorted(folder.iterdir()) if _is_program(path)]


class _Reader(ExitStack):
    """A reader of graphs from files. A child process parses texts, because XLA may abort on one."""

    def __init__(self, collection: str | None, wanted: Wanted | None) -> None:
        super().__init__()
        self._collection, self._wanted = collection, wanted
        self._child: Child | None = None

    def read(self, path: Path) -> Iterator[Question]:
        """Yield the graphs of a file or a folder, with the files' configurations."""
        if path.is_dir():
            yield from self._read_folder(path)
        elif path.suffix == SUFFIX:
            yield self._check(_read_prepared(path))
        elif path.suffix == NPZ:
            check_collection(path, self._collection)
            found = identify_file(path, self._collection)
            yield _ask(read_npz(found.path, found.collection), path)
        elif _is_protobuf(path) or path.suffix in TEXT or path.is_file():
            is_tile = self._collection in TILE
            for module in self.read_modules(path, None if is_tile else self._collection):
                graph = module.record.graph
                question = _ask(_as_kernel(graph) if is_tile else graph, path)
                program = module.record.module
                yield dataclasses.replace(question, notes=module.notes, module=program)
        else:
            raise InputError(
                f"{path}: expected a folder, a store or a file {NPZ}, {', '.join(PROTOBUF)}, "
                f"{', '.join(TEXT)}, found {path.suffix or 'none of these suffixes'}."
            )

    def read_modules(self, path: Path, collection: str | None) -> Iterator[Module]:
        """Yield the programs of a file that is not npz, in the order of the file."""
        messages, notes = (self._read_records if _is_protobuf(path) else self._read_texts)(path)
        yield from map(Module, make_records(path, messages, collection), notes)

    def _read_folder(self, folder: Path) -> Iterator[Question]:
        """Yield the graphs of a store, or of the npz files, modules and dumps directly in a folder;
        if it has none, the graphs of the competition's npz files below it."""
        from solution.store.store import Store, is_store  # slow to import

        if is_store(folder):
            for file, seal in Store.open(folder).seals().items():
                yield self._check(_read_prepared(file, seal))
            return
        programs = list_programs(folder)
        for path in programs:
            yield from self.read(path)
        if not programs:
            for found in find_files(folder):
                check_collection(found.path, self._collection)
                yield _ask(read_npz(found.path, found.collection), found.path)

    def _check(self, question: Question) -> Question:
        """Return a store's graph; raise InputError if it is of another collection than the user
        gave."""
        _check_same(question.file, question.graph.collection, self._collection)
        return question

    def _read_records(self, path: Path) -> tuple[list[Any], list[tuple[str, ...]]]:
        """Return the TuningRecord messages of a protobuf file, and notes on each (see Module)."""
        messages = read_records(path)
        if self._wanted:
            if self._wanted.function:
                raise InputError(f"{path}: --function names one of StableHLO. Leave it out.")
            numbers = pick_modules(path, [m.module.name for m in messages], self._wanted.module)
            messages = [messages[number] for number in numbers]
        return messages, [() if m.runs else tuple(describe_module(m.module)) for m in messages]

    def _read_texts(self, path: Path) -> tuple[list[Any], list[tuple[str, ...]]]:
        """Return, for each program of a text that XLA or jax reads, a TuningRecord without runs,
        and notes on which parts of the program are considered."""
        if self._child is None:
            self._child = self.enter_context(Child(Limits()))
        programs = list(read_programs(path, self._child, self._wanted, runs=False))
        messages = [MESSAGES["TuningRecord"](module=program.module) for program in programs]
        return messages, [program.notes for program in programs]


def _is_program(path: Path) -> bool:
    """Return True if a file in a folder is a graph or a program: of XLA's dumps only the
    unoptimised module, as protobuf if there is one."""
    if path.name.endswith(DUMPED):
        return not path.with_name(path.name.removesuffix(DUMPED) + AS_PROTO).exists()
    return path.suffix in (NPZ, *PROTOBUF, *OF_FOLDERS) and not path.name.endswith(REPORT)


def _is_protobuf(path: Path) -> bool:
    """Return True if the file is a protobuf: with a protobuf suffix unless its contents are of
    another form; with another suffix only if it begins like a module."""
    if not path.is_file() or path.suffix == ".py":
        return path.suffix in PROTOBUF
    form = find_form_of(path)
    if path.suffix in PROTOBUF:
        return form in (BINARY, "")
    return form == BINARY and has_module_begin(path)


def _as_kernel(graph: Graph) -> Graph:
    """Return a module's graph as a graph of tile:xla, with a single tile of zeros."""
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


def _ask(graph: Graph, file: Path) -> Question:
    return Question(graph, describe_graph(graph), file)


def _read_prepared(path: Path, seal: str | None = None) -> Question:
    """Read a store's graph as a question. The graph may be pruned, so the whole program's sizes are
    read from the file's record."""
    graph, summary = read_prepared(path, seal), read_record(path).get("summary", {})
    try:
        counts = [_read_count(summary[name]) for name in ("nodes", "edges", "configurable")]
        facts = Facts(str(summary["architecture"]), *counts)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: lacks its summary. Prepare the data again.") from error
    return Question(graph, facts, path)


def _read_count(value: object) -> int:
    """Return `value`; raise ValueError unless it is an integer from 0 to MOST."""
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"expected a number from 0 to {MOST}, found {str(value)[:50]}")
    return value
