"""Label the configurations of a program on this CPU.

A configuration is compiled in one child process, its results are compared with the default's, and
it is timed in another child process. A configuration is sound if its results are correct.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from solution.collecting.child import CLOSED, Compile, Compiled, Timings
from solution.collecting.comparison import RULES
from solution.collecting.examination import Examined, Examiner
from solution.collecting.identity import describe_machine
from solution.collecting.journal import CANDIDATES, DIED, REFUSED, SOUND, WRONG, Journal
from solution.collecting.loaded import Loaded
from solution.collecting.program_space import ProgramSpace, make_collected_space
from solution.collecting.space import draw_new, name_config
from solution.collecting.target import CPU, Target, Tell
from solution.collecting.timing import SCHEMA, Outcome, is_settled, summarise
from solution.domain.graph import TIMED
from solution.programs.child import Child, ChildDiedError, Limits, Refusal, lease_core
from solution.programs.compiler import check_installed
from solution.programs.program import Program

# share of a program's time limit after which no more configurations are compiled
COMPILING_SHARE = 0.6
PARENTS = 6  # number of fastest configurations from which new ones are made
ROUND_PASSES = 2  # timing passes over all configurations after each round of drawing them
# name of the unchanged program's executable if that program is not one of the configurations
REFERENCE = "reference"


@dataclass(frozen=True)
class CpuTarget(Target):
    """This machine's CPU; labels are measured with a clock."""

    name: str = CPU
    NAMES: ClassVar[tuple[str, ...]] = (CPU,)

    def make_space(
        self, program: Program, kind: str, *, varies_fastest: bool = False
    ) -> ProgramSpace:
        return make_collected_space(program, kind, varies_fastest=varies_fastest)

    @property
    def schema(self) -> pl.Schema:
        return CANDIDATES

    def summarise(
        self, sound: pl.DataFrame, repeats: pl.DataFrame, state: Mapping[str, Any]
    ) -> Outcome:
        runs = repeats.join(sound.select("config"), on="config", how="semi")
        return summarise(runs, state["clock"])

    @contextmanager
    def open_workers(self, limits: Limits, processes: int | None = None) -> "Iterator[Workers]":
        """Open two child processes, to compile and to time, on the core that is least busy."""
        with lease_core() as core, Child(limits, core) as compiling, Child(limits, core) as timing:
            yield Workers(compiling, timing)


@dataclass(frozen=True)
class Workers:
    """Two child processes: one compiles configurations, the other times them."""

    compiling: Child
    timing: Child
    compiling_share = COMPILING_SHARE
    label_source = TIMED

    @property
    def clock(self) -> str:
        """The clock of the labels: "cpu" (CPU time, which repeats better) if the timing process is
        pinned to a core and uses no GPU, otherwise "wall" (wall time)."""
        return "cpu" if self.timing.pinned and self.timing.platform == "cpu" else "wall"

    def identify(self, program: Program) -> Mapping[str, Any]:
        return {
            "program": program.digest,
            "jax": check_installed(),
            "machine": describe_machine(),
            "target": CPU,
            "comparison": RULES,
        }

    def start(self, program: Program, space: ProgramSpace, journal: Journal, seed: int) -> "Timing":
        return Timing(program, space, journal, self, seed)


class Timing:
    """The labelling of one program: one child process compiles its configurations and compares
    their results; another child process times them."""

    batch = 1

    def __init__(
        self, program: Program, space: ProgramSpace, journal: Journal, workers: Workers, seed: int
    ) -> None:
        self._space, self._journal, self._workers = space, journal, workers
        self._seed = seed
        self._builder = Builder(workers.compiling, program, needs_edges=space.product is not None)
        # (the `wanted` of a round of `draw`, configurations from which this round makes new ones)
        self._parents: tuple[int, np.ndarray | None] = (-1, None)

    def open(self, tell: Tell, wanted: int) -> None:
        tell("compiling the default configuration")
        compiled = self._builder.open()
        self._generator = np.random.default_rng([self._seed, len(self._journal.candidates)])
        self._loaded = Loaded(self._workers.timing, self._builder.arguments, self._bury)
        default, has_unchanged = self._space.default, self._space.has_unchanged
        name_of_default = name_config(default)
        if has_unchanged and name_of_default not in self._journal.names:
            self._journal.add_candidate(name_of_default, default, SOUND, "", compiled.seconds)
        reference = name_of_default if has_unchanged else REFERENCE
        self._loaded.add(reference, compiled.executable)
        again = self._journal.sound().filter(pl.col("config") != reference)
        for number, (name, data) in enumerate(again.select("config", "values").iter_rows(), 1):
            tell(f"compiling again {number} of {len(again)}")
            self._build(name, self._space.from_bytes(data), is_known=True)
        self._build(name_of_default, default)

    def draw(self, count: int, wanted: int) -> np.ndarray:
        if self._space.varies_fastest and self._parents[0] != wanted:
            self._parents = wanted, self._find_fastest()
        parents = self._parents[1]
        known = self._journal.names
        # seeded by the number of known configurations, so that a resumed collection draws the same
        generator = np.random.default_rng([self._seed, len(known)])
        return draw_new(self._space, generator, count, known, parents)

    def label(self, configs: np.ndarray) -> None:
        for config in configs:
            self._build(name_config(config), config)

    def look(self) -> None:
        for _ in range(ROUND_PASSES):
            make_pass(self._loaded, self._journal, self._generator)

    def finish(self, deadline: float, tell: Tell) -> None:
        clock = self._workers.clock
        longest = 0.0
        for made in itertools.count(1):
            begin = time.monotonic()
            make_pass(self._loaded, self._journal, self._generator)
            longest = max(longest, time.monotonic() - begin)
            repeats = self._journal.sound_repeats()
            outcome = summarise(repeats, clock)
            tell(f"pass {self._journal.next_turn}, repeat tau {outcome.tau:.2f}")
            # a configuration without times in both halves gets no label; two passes give both
            is_labelled = made >= 2 or len(outcome.configs) == len(self._journal.sound())
            is_over = time.monotonic() + longest > deadline
            if is_labelled and (is_over or is_settled(repeats, clock)):
                return

    def summarise(self) -> Outcome:
        return summarise(self._journal.sound_repeats(), self._workers.clock)

    def describe(self) -> dict[str, Any]:
        return {
            "repeat_tau": self.summarise().tau,
            "passes": self._journal.next_turn,
            "clock": self._workers.clock,
            "pinned": self._workers.timing.pinned,
            "note": self._builder.note,
        }

    def _find_fastest(self) -> np.ndarray:
        """Return the PARENTS fastest configurations so far; the default if none was timed."""
        outcome = self.summarise()
        fastest = [outcome.configs[n] for n in np.argsort(outcome.nanoseconds)[:PARENTS]]
        found = [self._space.from_bytes(self._journal.read_bytes(name)) for name in fastest]
        return np.array(found or [self._space.default])

    def _build(self, name: str, config: np.ndarray, *, is_known: bool = False) -> None:
        if name in self._journal.names and not is_known:
            return
        status, note, compiled = self._builder.build(Compile(*self._space.prepare(config)))
        if not is_known:
            self._journal.add_candidate(name, config, status, note, compiled.seconds)
        elif status != SOUND:
            self._journal.mark(name, status, note)
        if status == SOUND:
            self._loaded.add(name, compiled.executable)

    def _bury(self, name: str, reason: str) -> None:
        self._journal.mark(name, DIED, f"while it was timed: {reason}")


class Builder:
    """Compiles configurations of one program in a child process and compares their results. If the
    process dies, the program is opened again in a new one. `needs_edges`: see Examiner."""

    def __init__(self, child: Child, program: Program, *, needs_edges: bool = False) -> None:
        self._child = child
        self._examiner = Examiner(child, program, needs_edges=needs_edges)
        self._examined: Examined | None = None
        self._is_open = False

    @property
    def arguments(self) -> list[np.ndarray]:
        """Return the program's arguments with which runs are timed; the program must be open."""
        assert self._examined is not None
        return self._examined.sets[0].arguments

    @property
    def note(self) -> str:
        """Return a sentence on errors that the comparison of results would miss; usually ""."""
        return self._examined.note if self._examined is not None else ""

    def open(self) -> Compiled:
        """Compile and run the program in its default configuration; keep its results. Raises
        InputError if that fails, or if a comparison with the results would miss too many errors."""
        if self._examined is None:
            self._examined = self._examiner.run()
            compiled = self._examined.compiled
        else:
            compiled = self._examiner.reopen(self._examined)
        self._is_open = True
        return compiled

    def build(self, request: Compile) -> tuple[str, str, Compiled]:
        """Compile a configuration and compare its results with the default's. Return its status
        (see CANDIDATES), why it is not sound ("" if it is), and the reply (empty if there is none).
        """
        nothing = Compiled(b"", 0.0, "")
        try:
            if not self._child.is_alive or not self._is_open:
                self.open()
            reply = self._child.ask(request)
            # the child process was replaced after the program was opened
            if reply == Refusal(CLOSED):
                self.open()
                reply = self._child.ask(request)
        except ChildDiedError as error:
            return DIED, str(error), nothing
        if isinstance(reply, Refusal):
            return REFUSED, reply.reason, nothing
        return (WRONG if reply.deviation else SOUND), reply.deviation, reply


def make_pass(loaded: Loaded, journal: Journal, generator: np.random.Generator) -> None:
    """Make a timing pass: run all loaded executables in random order, a few times each; store the
    times."""
    turn, rows = journal.next_turn, []
    for name in generator.permutation(loaded.names).tolist():
        timings = loaded.visit(name)
        if timings is not None:
            rows.append(_tabulate(name, turn, timings))
    journal.add_repeats(rows)


def _tabulate(name: str, turn: int, timings: Timings) -> pl.DataFrame:
    """Return an executable's runs in pass number `turn` as rows of the journal. Runs of even passes
    are in half 0, of odd passes in half 1."""
    count = len(timings.cpu)
    columns = {
        "config": [name] * count,
        "half": np.full(count, turn % 2, np.uint8),
        "turn": np.full(count, turn, np.uint32),
        "cpu_ns": timings.cpu,
        "wall_ns": timings.wall,
    }
    return pl.DataFrame(columns, SCHEMA)
