"""Label the configurations of a program: compile, compare and time them on this CPU.

For a TPU they are estimated instead: solution.collecting.tpu.labelling.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from solution.collecting.builder import Builder
from solution.collecting.child import Compile
from solution.collecting.comparison import RULES
from solution.collecting.identity import describe_machine
from solution.collecting.journal import CANDIDATES, SOUND, Journal
from solution.collecting.passes import Passes
from solution.collecting.spaces import (
    CompilerSpace,
    draw_untried,
    name_configuration,
    read_configuration,
)
from solution.collecting.target import Target
from solution.collecting.tiles import TileSpace
from solution.collecting.timing import Outcome, is_settled, summarise
from solution.domain.labels import TIMED
from solution.programs.child import Child, Limits, lease_core, list_cores
from solution.programs.compiler import check_installed
from solution.programs.program import Program

COMPILING_SHARE = 0.6  # largest share of a program's time
PARENTS = 6
ROUND_PASSES = 2  # passes after each round, to find the fastest configurations
REFERENCE = "reference"  # name of the unchanged program if it is not in the space

Tell = Callable[[str], None]


class Labelling(Protocol):
    """Labels the configurations of one program, and writes the results into its journal."""

    batch: int  # number of configurations that are compiled in parallel

    def open(self, tell: Tell, wanted: int) -> None:
        """Compile the default configuration, and again those that an earlier session found sound.

        Args:
            wanted: number of configurations to label.

        Raises InputError if the default cannot be compiled.
        """
        ...

    def draw(self, count: int, wanted: int) -> list[np.ndarray]:
        """Return up to `count` configurations that were not tried yet; none if no more exist.

        Args:
            wanted: number of sound configurations at the beginning of the current round.
        """
        ...

    def label(self, drawn: Sequence[np.ndarray]) -> None:
        """Compile configurations, and write their status into the journal."""
        ...

    def look(self) -> None:
        """Find roughly the fastest configurations, before others are drawn around them."""
        ...

    def finish(self, deadline: float, tell: Tell) -> None:
        """Finish the labels of all configurations, until the deadline (time.monotonic)."""
        ...

    def summarise(self) -> Outcome:
        """Return the labels known so far."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the summary's entries on how the labels were made."""
        ...


class LabelWorkers(Protocol):
    """The processes that label configurations, used for many programs."""

    @property
    def compiling(self) -> Child:
        """Return the child that reads program files."""
        ...

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the journal's candidates."""
        ...

    @property
    def compiling_share(self) -> float:
        """Return the share of a program's time after which no configuration is added."""
        ...

    @property
    def label_source(self) -> str:
        """Return what the labels come from, a clock or an estimator: see solution.domain.labels."""
        ...

    def identify(self, program: Program) -> Mapping[str, Any]:
        """Return what must be equal for the program's collection to be resumed."""
        ...

    def start(
        self, program: Program, space: CompilerSpace, journal: Journal, seed: int
    ) -> Labelling:
        """Return the Labelling of a program."""
        ...


@contextmanager
def open_workers(target: Target, limits: Limits, processes: int | None = None) -> Iterator[Any]:
    """Open the LabelWorkers of a target.

    Args:
        limits: of each compilation.
        processes: number of parallel compilations if times are not measured; by default one per
            core.

    Raises InputError if this machine cannot compile for the target.
    """
    if target.is_estimated:
        from solution.collecting.tpu.labelling import open_estimating

        with open_estimating(target, limits, processes or max(1, len(list_cores()))) as opened:
            yield opened
        return
    with (
        lease_core() as core,
        Child(limits, core) as compiling,
        Child(limits, core) as timing,
    ):
        yield Workers(compiling, timing)


@dataclass(frozen=True)
class Workers:
    """A child that compiles, and one that times."""

    compiling: Child
    timing: Child
    schema = CANDIDATES
    compiling_share = COMPILING_SHARE
    label_source = TIMED

    @property
    def clock(self) -> str:
        """Return "cpu" or "wall": CPU time repeats better, but only on one core and without a
        GPU."""
        return "cpu" if self.timing.pinned and self.timing.platform == "cpu" else "wall"

    def identify(self, program: Program) -> Mapping[str, Any]:
        """Return the program with its arguments, the compiler and the machine."""
        return {
            "program": program.digest,
            "jax": check_installed(),
            "machine": describe_machine(),
            "target": "cpu",
            "comparison": RULES,
        }

    def start(
        self, program: Program, space: CompilerSpace, journal: Journal, seed: int
    ) -> "Timing":
        """Return the Timing of a program's configurations."""
        generator = np.random.default_rng([seed, len(journal.candidates)])
        return Timing(program, space, journal, self, generator)


class Timing:
    """Compile configurations in one child, compare their results, and time them in another."""

    batch = 1

    def __init__(
        self,
        program: Program,
        space: CompilerSpace,
        journal: Journal,
        workers: Workers,
        generator: np.random.Generator,
    ) -> None:
        self._space, self._journal, self._workers = space, journal, workers
        self._generator = generator
        is_tiled = isinstance(space, TileSpace)
        self._builder = Builder(workers.compiling, program, needs_edges=is_tiled)
        self._parents: tuple[int, list[np.ndarray]] = (-1, [])

    def open(self, tell: Tell, wanted: int) -> None:
        """Compile the default configuration, and again those that an earlier session found
        sound."""
        tell("compiling the program as it is")
        compiled = self._builder.open()
        self._passes = Passes(
            self._workers.timing, self._builder.arguments, self._journal, self._generator
        )
        default, own = self._space.default, name_configuration(self._space.default)
        if self._space.reference_counts and own not in self._journal.names:
            self._journal.add_candidate(own, default, SOUND, "", compiled.seconds)
        reference = own if self._space.reference_counts else REFERENCE
        self._passes.load({reference: compiled.executable})
        again = self._journal.sound().filter(~self._journal.sound()["config"].is_in([reference]))
        for place, (name, data) in enumerate(again.select("config", "values").iter_rows()):
            tell(f"compiling again {place + 1} of {len(again)}")
            self._build(name, read_configuration(data, default), is_known=True)
        self._build(own, default)

    def draw(self, count: int, wanted: int) -> list[np.ndarray]:
        """Draw configurations around the fastest ones at the beginning of the round."""
        if self._parents[0] != wanted:
            self._parents = wanted, self._find_fastest()
        parents = self._parents[1]
        return draw_untried(self._space, self._generator, count, self._journal.names, parents)

    def label(self, drawn: Sequence[np.ndarray]) -> None:
        """Compile and compare configurations; load the sound ones into the timing child."""
        for values in drawn:
            self._build(name_configuration(values), values)

    def look(self) -> None:
        """Time all configurations in a few passes."""
        for _ in range(ROUND_PASSES):
            self._passes.make_pass()

    def finish(self, deadline: float, tell: Tell) -> None:
        """Time all configurations until their order is settled."""
        clock = self._workers.clock
        longest = 0.0
        while True:
            begin = time.monotonic()
            self._passes.make_pass()
            longest = max(longest, time.monotonic() - begin)
            repeats = self._journal.sound_repeats()
            tau = summarise(repeats, clock).tau
            tell(f"pass {self._journal.next_turn}, repeat tau {tau:.2f}")
            if is_settled(repeats, clock) or time.monotonic() + longest > deadline:
                return

    def summarise(self) -> Outcome:
        """Return the labels from all passes, see timing.Outcome."""
        return summarise(self._journal.sound_repeats(), self._workers.clock)

    def describe(self) -> dict[str, Any]:
        """Return the number of passes, the clock, and more on how times were measured."""
        return {
            "repeat_tau": self.summarise().tau,
            "passes": self._journal.next_turn,
            "clock": self._workers.clock,
            "pinned": self._workers.timing.pinned,
            "note": self._builder.note,
        }

    def _find_fastest(self) -> list[np.ndarray]:
        """Return the fastest configurations so far, if any were timed."""
        outcome = self.summarise()
        order = np.argsort(outcome.nanoseconds)[:PARENTS]
        like = self._space.default
        return [self._journal.read_values(outcome.configs[place], like) for place in order]

    def _build(self, name: str, values: np.ndarray, *, is_known: bool = False) -> None:
        if name in self._journal.names and not is_known:
            return
        status, note, compiled = self._builder.build(Compile(*self._space.prepare(values)))
        if not is_known:
            self._journal.add_candidate(name, values, status, note, compiled.seconds)
        elif status != SOUND:
            self._journal.mark(name, status, note)
        if status == SOUND:
            self._passes.load({name: compiled.executable})
