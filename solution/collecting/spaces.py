"""The spaces of a program's configurations: layouts, tiles of a matrix product, compile options.

A configuration is an array of small integers. Its name everywhere is a hash of its bytes, so
measurements cannot be attributed to another configuration.
"""

import hashlib
from typing import Any, Protocol

import numpy as np

from solution.collecting.constraints import constrain, find_ranks
from solution.collecting.target import Target
from solution.domain.vocabulary import LAYOUT_UNSET, MAX_RANK
from solution.features.candidates import CHANGES, SHARES
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import MESSAGES
from solution.programs.program import Program
from solution.system.errors import InputError

MAX_TRIES = 50  # rounds of drawing until a new configuration is found
CHOOSE = "Choose its options instead: `fastslow choose PROGRAM --over options`."


def name_configuration(values: np.ndarray) -> str:
    """Return the name of a configuration: a hash of its shape and its numbers."""
    content = f"{values.shape}".encode() + np.ascontiguousarray(values, np.int16).tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


class CompilerSpace(Protocol):
    """The configurations of one program, and the compiler's input for each."""

    default: np.ndarray  # everything is left to the compiler
    reference_counts: bool  # True if the unchanged program is a configuration of the space

    def draw(
        self, generator: np.random.Generator, count: int, parents: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Draw configurations; `parents` are the fastest so far, if known."""
        ...

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """Return the module and the compiler's flags."""
        ...

    def write(self, values: np.ndarray, run: Any) -> None:
        """Write the configuration into a message Run."""
        ...


class LayoutSpace:
    """Layouts of tensors at convolutions, dots and reshapes: values (configurable, 3, 6)."""

    reference_counts = True

    def __init__(self, program: Program, search: str, ranks: np.ndarray | None = None) -> None:
        """Find the tensors whose layouts may be set.

        Args:
            search: "random", or any other word to search around the compiler's default.
            ranks: (configurable, 3) ranks of the tensors, 0 if none may be set; by default
                find_ranks.
        """
        self._program = program
        self._search = search
        found = find_ranks(program.module, program.configurable) if ranks is None else ranks
        self._ranks = found
        self._tensors = np.argwhere(self._ranks > 0)
        shape = (len(program.configurable), 3, MAX_RANK)
        self.default = np.full(shape, LAYOUT_UNSET, np.int8)
        if not len(self._tensors):
            raise InputError(
                f"{program.name}: expected a convolution, dot or reshape of rank 2 to {MAX_RANK}, "
                f"whose layouts may be set, found none. {CHOOSE}"
            )

    def draw(
        self, generator: np.random.Generator, count: int, parents: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Draw random layouts; or, to search around the default, mutate parents."""
        if self._search == "random":
            return [self._draw_random(generator) for _ in range(count)]
        own = parents or [self.default]
        return [self._mutate(generator, own) for _ in range(count)]

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """Return the module with layout constraints, and no flags."""
        return constrain(self._program.module, self._program.configurable, values), Flags()

    def write(self, values: np.ndarray, run: Any) -> None:
        """Write the layouts of three tensors per node; those left to the compiler stay empty."""
        run.layout.layouts.SetInParent()
        for node in values:
            given = run.layout.layouts.nodes.add()
            for tensor in node:
                given.tensors.add().dims[:] = tensor[tensor != LAYOUT_UNSET].tolist()

    def _draw_random(self, generator: np.random.Generator) -> np.ndarray:
        share = np.exp(generator.uniform(*np.log(SHARES)))
        chosen = self._tensors[generator.random(len(self._tensors)) < share]
        if not len(chosen):
            chosen = self._tensors[generator.integers(len(self._tensors), size=1)]
        return self._set(self.default, chosen, generator)

    def _mutate(self, generator: np.random.Generator, parents: list[np.ndarray]) -> np.ndarray:
        """Mix the tensors' layouts of two parents, then set or unset some at random."""
        first, second = (parents[generator.integers(len(parents))] for _ in range(2))
        mixed = np.where(generator.random(len(first)) < 0.5, first.T, second.T).T
        count = min(len(self._tensors), int(generator.integers(1, CHANGES + 1)))
        chosen = self._tensors[generator.choice(len(self._tensors), count, replace=False)]
        changed = self._set(mixed, chosen, generator)
        for node, tensor in chosen[generator.random(count) < 0.25]:
            changed[node, tensor] = LAYOUT_UNSET
        return changed

    def _set(
        self, values: np.ndarray, chosen: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        result = values.copy()
        for node, tensor in chosen:
            rank = self._ranks[node, tensor]
            result[node, tensor, :rank] = generator.permutation(rank)
        return result


def make_layout_space(program: Program, target: Target, search: str) -> "LayoutSpace":
    """Return the space of layouts that a target's compiler can be asked for."""
    if not target.is_estimated:
        return LayoutSpace(program, search)
    from solution.collecting.tpu.layouts import TpuLayoutSpace

    return TpuLayoutSpace(program, search)


def draw_untried(
    space: CompilerSpace,
    generator: np.random.Generator,
    count: int,
    known: set[str],
    parents: list[np.ndarray],
) -> list[np.ndarray]:
    """Return up to `count` configurations of the space whose names are not in `known`."""
    found: dict[str, np.ndarray] = {}
    for _ in range(MAX_TRIES):
        if len(found) == count:
            break
        for values in space.draw(generator, count - len(found), parents):
            name = name_configuration(values)
            if name not in known:
                found.setdefault(name, values)
    return list(found.values())[:count]


def read_configuration(data: bytes, like: np.ndarray) -> np.ndarray:
    """Return the configuration from its bytes in a journal."""
    return np.frombuffer(data, like.dtype).reshape(like.shape).copy()


def make_run(
    space: CompilerSpace, values: np.ndarray, nanoseconds: int, *, is_default: bool
) -> Any:
    """Return the protobuf message Run of a configuration, marked as failed if it has no time."""
    run = MESSAGES["Run"](is_default=is_default, error=not nanoseconds)
    run.profile.compute_time_ns = nanoseconds
    space.write(values, run)
    return run
