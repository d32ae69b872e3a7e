"""Interface of targets: the CPU, timed with a clock, and TPUs, for which the compiler estimates.

A target consists of three classes: a Target, its LabelWorkers (processes that serve many programs),
and their Labelling of one program. TARGETS lists the Target classes.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from solution.system.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from solution.collecting.journal import Journal
    from solution.collecting.program_space import ProgramSpace
    from solution.collecting.timing import Outcome
    from solution.programs.child import Child, Limits
    from solution.programs.program import Program

# Heavy modules are imported later, so that a wrong target's name is reported at once.

CPU = "cpu"
# {first word of a target's name: (module, class)}
TARGETS = {
    CPU: ("solution.collecting.cpu", "CpuTarget"),
    "tpu": ("solution.collecting.tpu.target", "TpuTarget"),
}

Tell = Callable[[str], None]  # called with a description of the current work


@dataclass(frozen=True)
class Target:
    """A kind of machine to compile for; picklable, because jobs on other machines contain it."""

    name: str  # one of NAMES

    NAMES: ClassVar[tuple[str, ...]] = ()  # names of all targets of this class
    platform: ClassVar[str] = CPU  # platform for which jax lowers Python programs: cpu or tpu
    # Default limits of one compilation: seconds, and megabytes of memory
    seconds: ClassVar[float] = 60
    megabytes: ClassVar[int] = 4096
    minutes: ClassVar[float] = 3  # default time limit of a program

    def check(self, kind: str = "") -> None:
        """Raise InputError if this machine cannot compile for the target, or the target does not
        support the kind of configurations."""

    def make_space(
        self, program: "Program", kind: str, *, varies_fastest: bool = False
    ) -> "ProgramSpace":
        """Return the space of a program's configurations of one kind (see KINDS). `varies_fastest`:
        while collecting, new configurations mix and change the fastest ones so far instead of being
        random. Raises InputError if the program has nothing of this kind to set."""
        raise NotImplementedError

    @property
    def schema(self) -> "pl.Schema":
        """Return the columns of the journal's candidates: journal.CANDIDATES, and perhaps more."""
        raise NotImplementedError

    def summarise(
        self, sound: "pl.DataFrame", repeats: "pl.DataFrame", state: Mapping[str, Any]
    ) -> "Outcome":
        """Return the configurations' labels. `sound`: the journal's rows of correct configurations
        (columns of `schema`); `repeats`: timed runs (timing.SCHEMA); `state`: the journal's
        summary, with at least the entries of Labelling.describe."""
        raise NotImplementedError

    def open_workers(
        self, limits: "Limits", processes: int | None = None
    ) -> "AbstractContextManager[LabelWorkers]":
        """Open the processes that label configurations, with `limits` for each compilation.
        `processes`: their number if labels are estimated (None: one per core)."""
        raise NotImplementedError


def list_names() -> list[str]:
    """Return the names of all targets."""
    return [name for family in TARGETS for name in _find_class(family).NAMES]


def parse_target(text: str) -> Target:
    """Return the target named cpu, tpu:v2, tpu:v3 and so on; InputError if there is none."""
    family = text.partition(":")[0]
    if family not in TARGETS or text not in _find_class(family).NAMES:
        names = ", ".join(list_names())
        raise InputError(f"{text}: expected a target, one of {names}. Name one of them.")
    return _find_class(family)(text)


def _find_class(family: str) -> type[Target]:
    module, name = TARGETS[family]
    found: type[Target] = getattr(importlib.import_module(module), name)
    return found


class LabelWorkers(Protocol):
    """The processes that label configurations, used for many programs."""

    @property
    def compiling(self) -> "Child":
        """Return the child process that reads program files; on a CPU it also compiles."""

    @property
    def compiling_share(self) -> float:
        """Return the share of a program's time limit after which no configuration is drawn."""

    @property
    def label_source(self) -> str:
        """Return the source of the labels, a clock or an estimator: see solution.domain.graph."""

    def identify(self, program: "Program") -> Mapping[str, Any]:
        """Return facts, such as the target, that must be equal to resume the collection."""

    def start(
        self, program: "Program", space: "ProgramSpace", journal: "Journal", seed: int
    ) -> "Labelling":
        """Return an object that labels the configurations of one program."""


class Labelling(Protocol):
    """Labels the configurations of one program, and stores the labels in the journal."""

    batch: int  # number of configurations that are compiled in parallel

    def open(self, tell: Tell, wanted: int) -> None:
        """Compile the default, and the configurations that an earlier command found to be sound
        (correct). `wanted`: number of sound configurations to collect. Raises InputError if the
        default cannot be compiled."""

    def draw(self, count: int, wanted: int) -> "np.ndarray":
        """Return up to `count` untried configurations (k, sites). `wanted` identifies the round of
        drawing: the number of sound configurations at which the round begins."""

    def label(self, configs: "np.ndarray") -> None:
        """Compile configurations (k, sites), and write their status into the journal."""

    def look(self) -> None:
        """If labels are times, time all configurations roughly, to find the fastest for `draw`."""

    def finish(self, deadline: float, tell: Tell) -> None:
        """Complete the labels of all configurations; stop at the deadline (of time.monotonic), or
        as soon after it as all have a label."""

    def summarise(self) -> "Outcome":
        """Return the labels known so far."""

    def describe(self) -> dict[str, Any]:
        """Return entries for the journal's summary that say how the labels were made."""
