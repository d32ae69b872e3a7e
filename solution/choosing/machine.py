"""Measure configurations of a program on this machine, and time the best of them again.

What is proposed is compiled in one child and compared with the program as it is; what is sound is
timed in another, in passes that visit the batch and the default by turns in a random order. A time
is what the batch's smallest is of the default's smallest, in units of the default's first time: so
a machine that slows down slows both, and batches compare.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solution.choosing.journal import Trial
from solution.choosing.program_space import ProgramSpace
from solution.choosing.space import name_choices
from solution.choosing.verdict import ROUNDS, Verdict, judge
from solution.collecting.builder import Builder
from solution.collecting.child import Compile, Load, Open, Optimise, Refusal, Run
from solution.collecting.children import ChildDiedError
from solution.collecting.collect import Workers
from solution.collecting.journal import SOUND
from solution.collecting.timing import choose_runs

# Passes of a batch, and of a round: visits take milliseconds, so that many are cheap; of slow
# programs fewer are made, for their times vary less.
PASSES, LEAST_PASSES, PASS_SECONDS = 16, 4, 2.0
FINAL_PASSES, LEAST_FINAL, FINAL_SECONDS = 30, 4, 5.0
FINALISTS = 3
DEFAULT, WINNER = "default", "winner"  # keys of executables
COPIES = 3  # of each in a round: where code and data come to lie is luck, and the best of it counts


class VisitError(ChildDiedError):
    """The child died while it ran one of those that it holds."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass(frozen=True)
class Built:
    """A configuration that was compiled."""

    executable: bytes  # none where it failed
    note: str
    seconds: float


class Machine:
    """A program that is open in both children."""

    def __init__(
        self,
        chosen: ProgramSpace,
        workers: Workers,
        seed: int = 0,
        reference: float | None = None,
    ) -> None:
        """Compile and load the program as it is.

        Args:
            reference: nanoseconds of the default in an earlier session of the same search, in units
                of which all times are.

        Raises:
            InputError: the program cannot be compiled as it is.
        """
        self._chosen, self._workers = chosen, workers
        self._generator = np.random.default_rng(seed)
        self._builder = Builder(workers.compiling, chosen.program)
        self._default = self._builder.open().executable
        self._kept: dict[str, bytes] = {}
        self._runs: dict[str, int] = {}
        self._reference = reference or 0.0
        self._open()

    def measure(self, choices: np.ndarray) -> list[Trial]:
        """Compile, compare and time configurations (k, sites); what fails has no time."""
        begin = time.monotonic()
        names = [name_choices(row) for row in choices]
        built = [self._build(name, row) for name, row in zip(names, choices, strict=True)]
        common = (time.monotonic() - begin - sum(one.seconds for one in built)) / len(built)
        begin = time.monotonic()
        times, deaths = self._time({n: b.executable for n, b in zip(names, built, strict=True)})
        common += (time.monotonic() - begin) / len(built)
        return [
            Trial(name, row.tolist(), times.get(name), one.note or deaths.get(name, ""),
                  one.seconds + common)
            for name, row, one in zip(names, choices, built, strict=True)
        ]  # fmt: skip

    def verify(self, trials: Sequence[Trial], rounds: int = ROUNDS) -> tuple[Trial, Verdict] | None:
        """The best of the fastest trials, and whether it is faster than the default.

        Both are decided on runs that the search has not seen, and the second on runs that the first
        has not. None where no trial but the default's own has a time.
        """
        own = name_choices(self._chosen.space.default)
        sound = sorted((t for t in trials if t.nanoseconds and t.name != own), key=lambda t: t.time)
        finalists = sound[:FINALISTS]
        executables = {t.name: self._rebuild(t) for t in finalists}
        times, _ = self._time({n: e for n, e in executables.items() if e})
        timed = [trial for trial in finalists if trial.name in times]
        if not timed:
            return None
        winner = min(timed, key=lambda trial: times[trial.name])
        made = [self._make_round(executables[winner.name]) for _ in range(rounds)]
        times_of_both = np.array([one for one in made if one is not None])
        if len(times_of_both) < rounds:
            return None
        return winner, judge(times_of_both[:, 0], times_of_both[:, 1])

    def optimised(self, choices: np.ndarray) -> bytes:
        """The module (serialized) that is run in the end; empty where the compiler dies."""
        try:
            reply = self._workers.compiling.ask(Optimise(*self._chosen.prepare(choices)))
        except ChildDiedError:
            return b""
        return b"" if isinstance(reply, Refusal) else bytes(reply)

    @property
    def reference(self) -> float:
        """Nanoseconds of the default, when it was first timed."""
        return self._reference

    def _build(self, name: str, choices: np.ndarray) -> Built:
        begin = time.monotonic()
        status, note, compiled = self._builder.build(Compile(*self._chosen.prepare(choices)))
        seconds = time.monotonic() - begin
        if status != SOUND:
            return Built(b"", f"{status}: {note}", seconds)
        self._kept[name] = compiled.executable
        return Built(compiled.executable, "", seconds)

    def _rebuild(self, trial: Trial) -> bytes:
        """What an earlier session compiled is compiled again."""
        if trial.name not in self._kept:
            self._build(trial.name, np.array(trial.choices, np.int32))
        return self._kept.get(trial.name, b"")

    def _open(self) -> None:
        self._workers.timing.ask(Open(b"", self._chosen.program.arguments))
        self._load(DEFAULT, self._default)
        if not self._reference:
            self._reference = self._alternate([DEFAULT])[DEFAULT]

    def _load(self, name: str, executable: bytes) -> None:
        reply = self._workers.timing.ask(Load(name, executable))
        if isinstance(reply, Refusal):
            raise ChildDiedError(reply.reason)
        self._runs[name] = choose_runs(reply)

    def _visit(self, name: str) -> float:
        reply = self._workers.timing.ask(Run(name, self._runs[name]))
        if isinstance(reply, Refusal):
            raise ChildDiedError(reply.reason)
        times = reply.cpu if self._workers.clock == "cpu" else reply.wall
        return float(times.min())

    def _time(self, executables: dict[str, bytes]) -> tuple[dict[str, float], dict[str, str]]:
        """Nanoseconds by name of those that run, and why the others do not."""
        deaths: dict[str, str] = {}
        sound = [name for name, executable in executables.items() if executable]
        for name in list(sound):
            try:
                self._load(name, executables[name])
            except ChildDiedError as error:
                deaths[name] = f"died while it was timed: {error}"
                sound.remove(name)
                self._reload({n: executables[n] for n in sound})
        while sound:
            try:
                smallest = self._alternate([DEFAULT, *sound])
            except VisitError as error:
                if error.name not in sound:
                    raise
                deaths[error.name] = f"died while it was timed: {error}"
                sound.remove(error.name)
                self._reload({n: executables[n] for n in sound})
                continue
            scale = self._reference / smallest[DEFAULT]
            return {name: smallest[name] * scale for name in sound}, deaths
        return {}, deaths

    def _alternate(self, names: Sequence[str], *, is_final: bool = False) -> dict[str, float]:
        """The smallest time of each, visited by turns in random orders.

        Raises VisitError where the child dies of one.
        """
        least, most = (LEAST_FINAL, FINAL_PASSES) if is_final else (LEAST_PASSES, PASSES)
        deadline = time.monotonic() + (FINAL_SECONDS if is_final else PASS_SECONDS)
        smallest = dict.fromkeys(names, np.inf)
        for turn in range(most):
            if turn >= least and time.monotonic() > deadline:
                break
            for name in self._generator.permutation(list(names)).tolist():
                try:
                    smallest[name] = min(smallest[name], self._visit(name))
                except ChildDiedError as error:
                    raise VisitError(name, str(error)) from error
        return smallest

    def _reload(self, executables: dict[str, bytes]) -> None:
        """A child that died is followed by another, which has to be given everything again."""
        if not self._workers.timing.is_alive:
            self._open()
            for name, executable in executables.items():
                self._load(name, executable)

    def _make_round(self, executable: bytes) -> tuple[float, float] | None:
        """The smallest times of the default and of a configuration, in a new process."""
        self._workers.timing.close()
        try:
            self._open()
            keys: dict[str, list[str]] = {DEFAULT: [], WINNER: []}
            for copy in range(COPIES):
                for name, data in ((DEFAULT, self._default), (WINNER, executable)):
                    keys[name].append(f"{name} {copy}")
                    self._load(keys[name][-1], data)
            smallest = self._alternate([*keys[DEFAULT], *keys[WINNER]], is_final=True)
        except ChildDiedError:
            return None
        default, winner = (min(smallest[key] for key in own) for own in keys.values())
        return default, winner
