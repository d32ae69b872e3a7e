"""Collect one program: draw configurations, compile and compare them, time them, write them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.builder import Builder
from solution.collecting.child import Compile
from solution.collecting.children import Child, Limits
from solution.collecting.comparison import RULES
from solution.collecting.compiler import check_installed
from solution.collecting.identity import describe_machine
from solution.collecting.journal import SOUND, Journal
from solution.collecting.passes import Passes
from solution.collecting.program import Program, Wanted
from solution.collecting.records import (
    Measured,
    Place,
    configuration_kind,
    has_graph,
    remove_graph,
    write_graph,
)
from solution.collecting.spaces import (
    CompilerSpace,
    draw_untried,
    name_configuration,
    read_configuration,
)
from solution.collecting.tiles import TileSpace
from solution.collecting.timing import Outcome, is_settled, summarise
from solution.domain.collection import collection
from solution.system.files import remove

COMPILING_SHARE = 0.6  # of a program's time at most
MIN_CONFIGS = 8  # fewer are no graph
ROUNDS = 3  # in which configurations around the fastest so far are drawn
PARENTS = 6
MUCH_MORE = 1.5  # times the time that was too short
ROUND_PASSES = 2  # by which they are found
REFERENCE = "reference"  # the name of the program without anything asked, where it is no
# configuration itself

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How a program is collected."""

    configs: int = 60
    seconds: float = 180.0  # for a program
    seed: int = 0
    limits: Limits = Limits()
    keep_flat: bool = False
    replace: bool = False
    wanted: Wanted | None = None  # programs of a file; None: all
    arguments: Path | None = None  # a file of them, for the one program


@dataclass(frozen=True)
class Workers:
    """The child that compiles and the one that times, which last for many programs."""

    compiling: Child
    timing: Child

    @property
    def clock(self) -> str:
        """CPU time repeats better, but only of a process on one core, and not of a GPU's work."""
        return "cpu" if self.timing.pinned and self.timing.platform == "cpu" else "wall"


class ProgramCollection:
    """The collection of one program, which goes on where it was stopped."""

    def __init__(
        self,
        program: Program,
        space: CompilerSpace,
        place: Place,
        settings: Settings,
        workers: Workers,
    ) -> None:
        self._program, self._space, self._place = program, space, place
        self._settings, self._workers = settings, workers
        folder = place.find("log", program.name)
        identity = _identify(program, space, place, settings.seed)
        if settings.replace and folder.exists():
            remove(folder)
            remove_graph(place, program.name)
        # Records from before there were kinds are of layouts or tiles, as their collection says.
        self.journal = Journal(folder, identity, {"kind": collection(place.collection).kind})
        drawn = [settings.seed, len(self.journal.candidates)]
        self._generator = np.random.default_rng(drawn)
        is_tiled = isinstance(space, TileSpace)
        self._builder = Builder(workers.compiling, program, needs_edges=is_tiled)

    def run(self, tell: Tell) -> dict[str, Any]:
        """Collect until the order is settled or the time is over; the summary.

        Args:
            tell: called with a few words on what is being done.

        Raises:
            InputError: the program cannot be compiled as it is.
        """
        if self._is_done:
            return self._finish_again()
        begin = time.monotonic()
        self._open(tell)
        is_cut = not self._draw(begin + COMPILING_SHARE * self._settings.seconds, tell)
        self._time(begin + self._settings.seconds, tell)
        return self._finish(time.monotonic() - begin, is_cut=is_cut)

    @property
    def _is_done(self) -> bool:
        """Whether as many configurations were asked for before, of older records: were tried.

        Not where the time was too short for them, and there is much more of it now.
        """
        state = self.journal.state
        has_time = state.get("cut") and self._settings.seconds > MUCH_MORE * state["allowed"]
        asked = state.get("asked", len(self.journal.candidates))
        return self.journal.is_finished and self._settings.configs <= asked and not has_time

    def _finish_again(self) -> dict[str, Any]:
        """The summary as it stands; a graph that is kept is written where it is not there."""
        state = self.journal.state
        is_kept = "npz" in state or self._settings.keep_flat
        if is_kept and not has_graph(self._place, self._program.name):
            outcome = summarise(self.journal.sound_repeats(), state["clock"])
            self.journal.finish(state | {"npz": self._write(outcome)}, is_final=True)
        return self.journal.state

    def _open(self, tell: Tell) -> None:
        """Compile the program as it is, and again what an earlier session found sound."""
        tell("compiling the program as it is")
        compiled = self._builder.open()
        self._passes = Passes(
            self._workers.timing, self._builder.arguments, self.journal, self._generator
        )
        default, own = self._space.default, name_configuration(self._space.default)
        if self._space.reference_counts and own not in self.journal.names:
            self.journal.add_candidate(own, default, SOUND, "", compiled.seconds)
        reference = own if self._space.reference_counts else REFERENCE
        self._passes.load({reference: compiled.executable})
        again = self.journal.sound().filter(~self.journal.sound()["config"].is_in([reference]))
        for place, (name, data) in enumerate(again.select("config", "values").iter_rows()):
            tell(f"compiling again {place + 1} of {len(again)}")
            self._build(name, read_configuration(data, default), is_known=True)
        self._build(own, default)

    def _draw(self, deadline: float, tell: Tell) -> bool:
        """Draw and compile configurations until there are enough, or no others.

        Returns False where the deadline came first.
        """
        wanted = self._settings.configs
        most = 2 * wanted  # where half of them fail, the rest will
        for number in range(1, ROUNDS + 1):
            fastest = self._find_fastest()
            while len(self.journal.sound()) < wanted * number // ROUNDS:
                known = self.journal.names
                drawn = draw_untried(self._space, self._generator, 1, known, fastest)
                if not drawn or len(known) >= most:
                    return True
                if time.monotonic() > deadline:
                    return False
                self._build(name_configuration(drawn[0]), drawn[0])
                sound = len(self.journal.sound())
                tell(f"compiled {len(known) + 1}, sound {sound} of {wanted}")
            for _ in range(ROUND_PASSES):
                self._passes.make_pass()
        return True

    def _find_fastest(self) -> list[np.ndarray]:
        """The fastest configurations so far, where some were timed."""
        outcome = summarise(self.journal.sound_repeats(), self._workers.clock)
        order = np.argsort(outcome.nanoseconds)[:PARENTS]
        return [self._values(outcome.configs[place]) for place in order]

    def _build(self, name: str, values: np.ndarray, *, is_known: bool = False) -> None:
        if name in self.journal.names and not is_known:
            return
        status, note, compiled = self._builder.build(Compile(*self._space.prepare(values)))
        if not is_known:
            self.journal.add_candidate(name, values, status, note, compiled.seconds)
        elif status != SOUND:
            self.journal.mark(name, status, note)
        if status == SOUND:
            self._passes.load({name: compiled.executable})

    def _time(self, deadline: float, tell: Tell) -> None:
        clock = self._workers.clock
        longest = 0.0
        while True:
            begin = time.monotonic()
            self._passes.make_pass()
            longest = max(longest, time.monotonic() - begin)
            repeats = self.journal.sound_repeats()
            tau = summarise(repeats, clock).tau
            tell(f"pass {self.journal.next_turn}, repeat tau {tau:.2f}")
            if is_settled(repeats, clock) or time.monotonic() + longest > deadline:
                return

    def _finish(self, seconds: float, *, is_cut: bool) -> dict[str, Any]:
        outcome = summarise(self.journal.sound_repeats(), self._workers.clock)
        summary = self._describe(outcome, seconds)
        reason = _find_reason(outcome)
        # Where the time was too short for a graph, the same command goes on.
        is_final = len(outcome.configs) >= MIN_CONFIGS
        if not reason or (self._settings.keep_flat and is_final):
            summary["npz"] = self._write(outcome)
        else:
            remove_graph(self._place, self._program.name)
        summary |= {"left_out": reason, "cut": is_cut, "allowed": self._settings.seconds}
        self.journal.finish(summary, is_final=is_final)
        return self.journal.state

    def _write(self, outcome: Outcome) -> str:
        """Write the graph; where its npz file lies in the folder."""
        times = dict(zip(outcome.configs, outcome.nanoseconds.tolist(), strict=True))
        rows = self.journal.candidates.select("config", "values").iter_rows()
        measured = [
            Measured(read_configuration(data, self._space.default), times.get(name, 0))
            for name, data in rows
        ]
        _, npz = write_graph(self._program, self._space, measured, self._place)
        return str(npz.relative_to(self._place.folder))

    def _values(self, name: str) -> np.ndarray:
        rows = self.journal.candidates.filter(self.journal.candidates["config"] == name)
        return read_configuration(rows["values"][0], self._space.default)

    def _describe(self, outcome: Outcome, seconds: float) -> dict[str, Any]:
        counts = self.journal.candidates["status"].value_counts()
        return {
            "asked": self._settings.configs,
            "configs": len(outcome.configs),
            "statuses": dict(counts.iter_rows()),
            "failure": self.journal.find_failure(),
            "spread": outcome.spread if outcome.configs else 1.0,
            "repeat_tau": outcome.tau,
            "passes": self.journal.next_turn,
            "clock": self._workers.clock,
            "pinned": self._workers.timing.pinned,
            "seconds": seconds,
            "note": self._builder.note,
        }


def _find_reason(outcome: Outcome) -> str:
    """Why the program makes no graph; empty where it does."""
    if len(outcome.configs) < MIN_CONFIGS:
        return f"only {len(outcome.configs)} configurations"
    return "flat" if outcome.is_flat else ""


def _identify(program: Program, space: CompilerSpace, place: Place, seed: int) -> dict[str, Any]:
    """What must be the same where a collection goes on."""
    return {
        "program": program.digest,
        "collection": place.collection,
        "kind": configuration_kind(space),
        "jax": check_installed(),
        "machine": describe_machine(),
        "seed": seed,
        "comparison": RULES,
    }
