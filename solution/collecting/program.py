"""A program to be collected: its module, what it is called with, and its graph."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.arguments import make_arguments
from solution.collecting.child import Lower, Refusal
from solution.collecting.children import Child, ChildDiedError
from solution.collecting.portable import make_portable
from solution.collecting.program_file import PYTHON, SUFFIXES
from solution.data.hlo.messages import MESSAGES, check_sizes, read_records
from solution.data.hlo.nodes import Nodes, find_configurable, read_nodes
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET, NUM_LAYOUT_FEATURES, NUM_TILE_FEATURES
from solution.system.errors import InputError
from solution.system.names import make_safe

PROTOBUF = ".pb"
UNSEEDED = "A program that draws random numbers without a seed is another one each time it is read."


@dataclass(frozen=True, eq=False)
class Program:
    """What is compiled in many configurations."""

    name: str
    module: Any  # the message Module, as the graph shows it
    given: list[np.ndarray] | None  # what its file calls it with; None: it does not say

    @cached_property
    def arguments(self) -> list[np.ndarray]:
        """What it is called with: random numbers, drawn when they are asked for, if none are given.

        Raises InputError where numbers of a parameter's type cannot be drawn.
        """
        return make_arguments(self.module, self.name) if self.given is None else self.given

    @cached_property
    def nodes(self) -> Nodes:
        return read_nodes(self.module)

    @cached_property
    def configurable(self) -> np.ndarray:
        """The nodes (configurable,) whose layouts may be set, as TpuGraphs chooses them."""
        return find_configurable(self.nodes.opcodes)

    @cached_property
    def plain(self) -> bytes:
        """The serialized module as it is compiled where nothing is asked of the compiler."""
        return bytes(make_portable(self.module).SerializeToString())

    @cached_property
    def digest(self) -> str:
        """A hash of the module and its arguments, but for the number that its process gave it."""
        module = self.module
        found = hashlib.sha256(f"{module.name} {module.entry_computation_id}".encode())
        for computation in module.computations:
            found.update(computation.SerializeToString(deterministic=True))
        for array in self.arguments:
            found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return found.hexdigest()[:16]


def read_programs(path: Path, child: Child) -> Iterator[Program]:
    """The programs of a file: one, or as many as a protobuf of tuning records has.

    Raises:
        InputError: no such file, of no known form, or one that jax or XLA refuses.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder. Give the file of one program in it.")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give a program's file.")
    if path.suffix == PROTOBUF:
        yield from _read_protobuf(path)
    elif path.suffix in SUFFIXES:
        yield _read_source(path, child)
    else:
        known = "; ".join(f"{suffix}: {what}" for suffix, what in SUFFIXES.items())
        raise InputError(
            f"{path}: expected the file of a program, by its suffix ({known}; {PROTOBUF}: a dump "
            f"or tuning records), found {path.suffix or 'none'}."
        )


def make_graph(program: Program, name: str) -> Graph:
    """The program as a graph of the collection, with one configuration in which nothing is set."""
    nodes, own = program.nodes, collection(name)
    is_tile = own.kind == "tile"
    unset = np.full((1, len(program.configurable), NUM_LAYOUT_FEATURES), LAYOUT_UNSET, np.int8)
    return Graph(
        name=program.name,
        collection=own,
        node_features=nodes.features,
        node_opcodes=nodes.opcodes,
        edges=nodes.edges,
        configurable=np.empty(0, np.int64) if is_tile else program.configurable,
        configs=np.zeros((1, NUM_TILE_FEATURES), np.float32) if is_tile else encode(unset),
        runtimes=None,
        summed=nodes.summed,
    )


def name_program(path: Path, place: int | None = None) -> str:
    """What a file's program is called, and all that is written of it.

    The name is made safe as that of an npz file is, so that programs of one npz file have one name.

    Args:
        place: of the program, where the file has several.
    """
    name = path.stem
    if path.suffix == PROTOBUF:
        name = name.removesuffix(".hlo")
    if place is not None:
        name = f"{name}_{place}"
    return make_safe(name)


def _read_protobuf(path: Path) -> Iterator[Program]:
    modules = [record.module for record in read_records(path)]
    for place, module in enumerate(modules):
        name = name_program(path, place if len(modules) > 1 else None)
        yield Program(name, module, None)


def _read_source(path: Path, child: Child) -> Program:
    if not path.read_bytes().strip():
        raise InputError(f"{path}: expected {SUFFIXES[path.suffix]}, found an empty file.")
    if child.has_run_python:
        child.end()  # with all that the file changed there: each is read as if it were alone
    try:
        reply = child.ask(Lower(path.absolute()))
    except ChildDiedError as error:
        raise InputError(
            f"{path}: reading it failed: {error}. Expected a file that is read within the limits."
        ) from error
    finally:
        child.has_run_python = path.suffix == PYTHON
    if isinstance(reply, Refusal):
        raise InputError(f"{path}: expected {SUFFIXES[path.suffix]}, but: {reply.reason}")
    data, arguments = reply
    module = MESSAGES["Module"].FromString(data)
    check_sizes(module, str(path))
    return Program(name_program(path), module, arguments)
