"""Read programs from files of any form: their modules, arguments and graphs."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET, NUM_LAYOUT_FEATURES, NUM_TILE_FEATURES
from solution.programs import forms
from solution.programs.arguments import VERSION, make_arguments
from solution.programs.child import Child, ChildDiedError, ChildRequest, Host, Refusal
from solution.programs.functions import drop_uncalled
from solution.programs.hlo.messages import MESSAGES, check_sizes, read_records
from solution.programs.hlo.nodes import Nodes, find_configurable, read_nodes
from solution.programs.left_out import describe_left_out, find_left_out, restore_constants
from solution.programs.obstacles import describe_module, find_obstacle
from solution.programs.portable import make_portable
from solution.programs.python_file import lower_file
from solution.system.errors import InputError
from solution.system.names import make_safe
from solution.system.wording import join_names

PYTHON, PROTOBUF_SUFFIX, NPZ = ".py", ".pb", ".npz"
OF_PYTHON = "Python with a jax function or a torch module"
# {suffix: form of the file, if its content does not show the form}
FORMS = {
    ".hlo": forms.HLO, ".txt": forms.HLO, ".mlir": forms.STABLEHLO,
    ".stablehlo": forms.STABLEHLO, ".pb": forms.PROTOBUF,
    ".binpb": forms.PROTOBUF,
}  # fmt: skip
KNOWN = tuple(FORMS)
MOST_NAMED = 10  # maximum number of modules named in a message
UNSEEDED = "A program that draws random numbers without a seed is another one each time it is read."


@dataclass(frozen=True, eq=False)
class Program:
    """A program that was read from a file: its module, arguments and graph."""

    name: str
    # the message Module from which the graph is made
    module: Any
    # Arguments from the file, with None for an argument without numbers; None if the file has none.
    given: list[np.ndarray | None] | None
    # sentences for the user on how the module differs from the program that the user wrote
    notes: tuple[str, ...] = ()
    obstacle: str = ""  # why the program cannot be run on one device of this machine; "" if it can

    @cached_property
    def arguments(self) -> list[np.ndarray]:
        """Return the arguments; draw those that the file lacks. InputError if drawing fails."""
        given = self.given
        if given is not None and all(array is not None for array in given):
            return [array for array in given if array is not None]
        drawn = make_arguments(self.module, self.name)
        if given is None:
            return drawn
        pairs = zip(given, drawn, strict=True)
        return [random if array is None else array for array, random in pairs]

    @property
    def is_drawn(self) -> bool:
        """Return True if some arguments are drawn at random because the file lacks them."""
        return self.given is None or any(array is None for array in self.given)

    @property
    def brings_some(self) -> bool:
        """Return True if the file has numbers for some arguments."""
        return self.given is not None and any(array is not None for array in self.given)

    @cached_property
    def nodes(self) -> Nodes:
        return read_nodes(self.module)

    @cached_property
    def configurable(self) -> np.ndarray:
        """Return the nodes (configurable,) whose layouts can be set, by TpuGraphs' rule."""
        return find_configurable(self.nodes.opcodes)

    @cached_property
    def plain(self) -> bytes:
        """Return the serialized module for the default configuration, in a form that all backends
        accept."""
        return bytes(make_portable(self.module).SerializeToString())

    @cached_property
    def digest(self) -> str:
        """Return a hash of arguments and module, without the module's id, which differs between
        processes."""
        found = self._hash_module()
        if self.is_drawn:  # they depend only on the module and the drawing rules (VERSION)
            found.update(f"drawn {VERSION}".encode())
        for array in self.given or ():
            if array is not None:
                found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return found.hexdigest()[:16]

    @cached_property
    def module_digest(self) -> str:
        """Return a hash of the module alone, because estimates do not depend on the arguments."""
        return self._hash_module().hexdigest()[:16]

    def _hash_module(self) -> "hashlib._Hash":
        module = self.module
        found = hashlib.sha256(f"{module.name} {module.entry_computation_id}".encode())
        for computation in module.computations:
            found.update(computation.SerializeToString(deterministic=True))
        return found


@dataclass(frozen=True)
class Lower(ChildRequest):
    """A request to lower a Python file. The reply is its serialized module, and its arguments (None
    for an argument of which only shape and type are given)."""

    path: Path
    platform: str = "cpu"  # cpu or tpu: the platform that a jax function is lowered for

    def answer(self, host: Host) -> tuple[bytes, list[np.ndarray | None]]:
        return lower_file(host.compiler, self.path, self.platform)


@dataclass(frozen=True)
class Parse(ChildRequest):
    """A request to parse text or bytecode; the reply is the serialized module."""

    form: str  # HLO or STABLEHLO, as in solution.programs.forms
    content: str | bytes
    function: str = ""  # the StableHLO function that becomes the program; "": main, or the only one

    def answer(self, host: Host) -> bytes:
        if self.form == forms.STABLEHLO:
            return host.compiler.parse_stablehlo(self.content, self.function)
        return host.compiler.parse_hlo(str(self.content))


@dataclass(frozen=True)
class Wanted:
    """A selection of a file's modules; by default all are selected."""

    module: str = ""  # a module's name, or its number from 1; "": all modules
    function: str = ""  # the StableHLO function that becomes the program; "": main, or the only one


def read_programs(
    path: Path,
    child: Child,
    wanted: Wanted | None = None,
    *,
    runs: bool = True,
    platform: str = "cpu",
) -> Iterator[Program]:
    """Yield the programs of a file in any form, one per module that `wanted` selects (default:
    all). `child` parses the file, and lowers Python for the `platform` cpu or tpu, which differ in
    a few functions. `runs`: the programs will be run, so constants left out of a text are drawn.

    Raises InputError if there is no file, its form is unknown, jax or XLA rejects it, or, with
    `runs` and the platform cpu, a program cannot run on one device of this machine.
    """
    wanted = wanted or Wanted()
    if path.is_dir():
        raise InputError(f"{path}: is a folder. Give the file of one program in it.")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give a program's file.")
    if path.suffix == NPZ:
        raise InputError(
            f"{path}: an npz file has configurations and no program that could be compiled. Give "
            f"the program's file, or make one: `fastslow module {quote(str(path))} --to "
            f"{quote(f'{path.stem}.hlo')}`."
        )
    if path.suffix == PYTHON:
        found = [_read_python(path, child, platform, runs=runs)]
    else:
        form = forms.find_form_of(path) or FORMS.get(path.suffix, "")
        if form == forms.PROTOBUF and (defect := forms.find_defect(path.read_bytes())):
            raise InputError(f"{path}: {defect}")
        if form == forms.PROTOBUF and (path.suffix in KNOWN or forms.has_module_begin(path)):
            found = _read_protobuf(path)
        elif form in (forms.HLO, forms.STABLEHLO):
            data = path.read_bytes()
            _check_content(path, data, form)
            found = _read_sources(path, forms.list_sources(data, form), child, wanted, runs=runs)
        else:
            raise _refuse_form(path, form)
    if wanted.function and not (path.suffix != PYTHON and form == forms.STABLEHLO):
        raise InputError(f"{path}: --function names one of StableHLO. Leave it out.")
    for number in pick_modules(path, [p.module.name for p in found], wanted.module):
        program = found[number]
        if runs and platform == "cpu" and program.obstacle:
            raise InputError(f"{path}: {program.obstacle}")
        check_sizes(program.module, str(path))
        yield program


def pick_modules(path: Path, names: list[str], wanted: str) -> list[int]:
    """Return the positions of the modules that `wanted` (a name, a number from 1, or "" for all)
    selects; InputError if it selects none, or if several have the name."""
    if not wanted:
        return list(range(len(names)))
    found = [number for number, name in enumerate(names) if name == wanted]
    if not found and wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        found = [int(wanted) - 1]
    if len(found) != 1:
        have = f"has {len(found)} modules {wanted}" if found else f"has no module {wanted}"
        numbered = [f"{number} ({name})" for number, name in enumerate(names, 1)]
        raise InputError(
            f"{path}: {have}. Its modules are {join_names(numbered, MOST_NAMED)}: give --module a "
            "number, or a name that only one has."
        )
    return found


def make_graph(program: Program, name: str) -> Graph:
    """Return the program as a graph of the collection `name` with its default configuration."""
    nodes, found = program.nodes, collection(name)
    is_tile = found.kind == "tile"
    unset = np.full((1, len(program.configurable), NUM_LAYOUT_FEATURES), LAYOUT_UNSET, np.int8)
    return Graph(
        name=program.name,
        collection=found,
        node_features=nodes.features,
        node_opcodes=nodes.opcodes,
        edges=nodes.edges,
        configurable=np.empty(0, np.int64) if is_tile else program.configurable,
        configs=np.zeros((1, NUM_TILE_FEATURES), np.float32) if is_tile else encode(unset),
        runtimes=None,
        summed=nodes.summed,
    )


def name_program(path: Path, number: int | None = None) -> str:
    """Return the name of a file's program in all outputs: the file's name, safe for file systems,
    and the program's `number` if there are several."""
    name = path.stem
    if path.suffix == PROTOBUF_SUFFIX:
        name = name.removesuffix(".hlo")
    if number is not None:
        name = f"{name}_{number}"
    return make_safe(name)


def _read_protobuf(path: Path) -> list[Program]:
    modules = [record.module for record in read_records(path)]
    return [
        Program(
            name_program(path, number if len(modules) > 1 else None),
            module,
            None,
            tuple(describe_module(module)),
            find_obstacle(module),
        )
        for number, module in enumerate(modules)
    ]


def _read_sources(
    path: Path, sources: list[forms.Source], child: Child, wanted: Wanted, *, runs: bool
) -> list[Program]:
    """Return a program for each module in `sources`, which are texts or bytecode. For the other
    arguments see read_programs."""
    found = []
    for number, source in enumerate(sources):
        name = name_program(path, number if len(sources) > 1 else None)
        expected = f"{source.form} {'text' if isinstance(source.content, str) else 'bytecode'}"
        data = _ask(path, child, Parse(source.form, source.content, wanted.function), expected)
        module = MESSAGES["Module"].FromString(data)
        if source.form == forms.STABLEHLO:
            drop_uncalled(module)
        constants = len(find_left_out(module))
        numbers = restore_constants(module, str(path), fill=runs)
        said = [describe_left_out(source.form, constants, numbers)] if constants else []
        notes = (*said, *describe_module(module, source))
        found.append(Program(name, module, None, notes, find_obstacle(module, source)))
    return found


def _read_python(path: Path, child: Child, platform: str, *, runs: bool) -> Program:
    _check_content(path, path.read_bytes(), OF_PYTHON)
    if child.has_run_python:
        child.end()  # the process ran another Python file, and the next one needs a clean process
    try:
        data, arguments = _ask(path, child, Lower(path.absolute(), platform), OF_PYTHON)
    finally:
        child.has_run_python = True
    module = MESSAGES["Module"].FromString(data)
    notes, obstacle = tuple(describe_module(module)), find_obstacle(module)
    return Program(name_program(path), module, arguments, notes, obstacle)


def _check_content(path: Path, data: bytes, expected: str) -> None:
    if not data.strip():
        raise InputError(f"{path}: expected {expected}, found an empty file.")


def _ask(path: Path, child: Child, request: Lower | Parse, expected: str) -> Any:
    try:
        reply = child.ask(request)
    except ChildDiedError as error:
        raise InputError(
            f"{path}: reading it failed: {error}. Expected a file that is read within the limits."
        ) from error
    if isinstance(reply, Refusal):
        raise InputError(f"{path}: expected {expected}, but: {reply.reason}")
    return reply


def _refuse_form(path: Path, form: str) -> InputError:
    found = "neither" if form else "a text that begins otherwise"
    return InputError(
        f"{path}: expected a program: {OF_PYTHON} ({PYTHON}), a text of HLO (it begins with "
        "HloModule) or StableHLO (with a module or a function), StableHLO's bytecode, what "
        "jax.export serializes, a dump or tuning records of protobuf "
        f"({PROTOBUF_SUFFIX}); found {found}."
    )
