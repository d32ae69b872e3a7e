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
from solution.collecting.child import WARM_UPS, Compile, Optimise, Refusal
from solution.collecting.children import ChildDiedError
from solution.collecting.journal import SOUND
from solution.collecting.labelling import Workers
from solution.collecting.loaded import Loaded
from solution.collecting.timing import MIN_RUNS

# Passes of a batch, and of a round: visits take milliseconds, so that many are cheap; of slow
# programs fewer are made, for their times vary less.
PASSES, LEAST_PASSES, PASS_SECONDS = 16, 4, 2.0
FINAL_PASSES, LEAST_FINAL, FINAL_SECONDS = 30, 4, 5.0
FINALISTS = 3
DEFAULT, WINNER = "default", "winner"  # keys of executables
COPIES = 3  # of each in a round: where code and data come to lie is luck, and the best of it counts


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
        self._builder = Builder(
            workers.compiling, chosen.program, needs_edges=bool(len(chosen.tiles))
        )
        self._default = self._builder.open().executable
        self._kept: dict[str, bytes] = {}
        self._deaths: dict[str, str] = {}  # why what compiled could not be timed, by name
        self._loaded = self._load_default()
        self._reference = reference or self._alternate([DEFAULT])[DEFAULT]

    def measure(self, choices: np.ndarray) -> list[Trial]:
        """Compile, compare and time configurations (k, sites); what fails has no time."""
        begin = time.monotonic()
        names = [name_choices(row) for row in choices]
        built = [self._build(name, row) for name, row in zip(names, choices, strict=True)]
        common = (time.monotonic() - begin - sum(one.seconds for one in built)) / len(built)
        begin = time.monotonic()
        times = self._time({n: b.executable for n, b in zip(names, built, strict=True)})
        common += (time.monotonic() - begin) / len(built)
        return [
            Trial(name, row.tolist(), times.get(name), one.note or self._deaths.get(name, ""),
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
        times = self._time(executables)
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

    def least_seconds(self, rounds: int = ROUNDS) -> float:
        """What the rounds of `verify` take at least, as of a slow program."""
        visits = LEAST_FINAL * (1 + MIN_RUNS)  # the first run of a visit is not looked at
        return rounds * 2 * COPIES * (WARM_UPS + visits) * self._reference / 1e9

    @property
    def note(self) -> str:
        """What of the results is not compared, in words; mostly empty."""
        return self._builder.note

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

    def _load_default(self) -> Loaded:
        """The program as it is, where it is to be timed, and nothing else."""
        loaded = Loaded(self._workers.timing, self._builder.arguments, self._bury)
        loaded.add(DEFAULT, self._default)
        return loaded

    def _bury(self, name: str, reason: str) -> None:
        """Of what cannot be timed; without the default there is nothing to compare with."""
        if name == DEFAULT:
            raise ChildDiedError(reason)
        self._deaths[name] = f"died while it was timed: {reason}"

    def _time(self, executables: dict[str, bytes]) -> dict[str, float]:
        """Nanoseconds by name of those that run; of the others, `_deaths` says why."""
        self._loaded.keep([DEFAULT])
        for name, executable in executables.items():
            if executable:
                self._loaded.add(name, executable)
        smallest: dict[str, float] = {}
        while len(self._loaded.names) > 1 and not smallest:
            smallest = self._alternate(self._loaded.names)
        return {
            name: time * self._reference / smallest[DEFAULT]
            for name, time in smallest.items()
            if name != DEFAULT
        }

    def _alternate(self, names: Sequence[str], *, is_final: bool = False) -> dict[str, float]:
        """The smallest time of each, visited by turns in random orders.

        None of any where one dies: those after it run in another process than those before.
        """
        least, most = (LEAST_FINAL, FINAL_PASSES) if is_final else (LEAST_PASSES, PASSES)
        deadline = time.monotonic() + (FINAL_SECONDS if is_final else PASS_SECONDS)
        smallest = dict.fromkeys(names, np.inf)
        for turn in range(most):
            if turn >= least and time.monotonic() > deadline:
                break
            for name in self._generator.permutation(list(names)).tolist():
                timings = self._loaded.visit(name)
                if timings is None:
                    return {}
                times = timings.cpu if self._workers.clock == "cpu" else timings.wall
                smallest[name] = min(smallest[name], float(times.min()))
        return smallest

    def _make_round(self, executable: bytes) -> tuple[float, float] | None:
        """The smallest times of the default and of a configuration, in a new process."""
        self._workers.timing.close()
        keys: dict[str, list[str]] = {DEFAULT: [], WINNER: []}
        try:
            self._loaded = self._load_default()
            for copy in range(COPIES):
                for name, data in ((DEFAULT, self._default), (WINNER, executable)):
                    keys[name].append(f"{name} {copy}")
                    self._loaded.add(keys[name][-1], data)
            smallest = self._alternate([*keys[DEFAULT], *keys[WINNER]], is_final=True)
        except ChildDiedError:
            return None
        if not smallest:
            return None
        default, winner = (min(smallest[key] for key in own) for own in keys.values())
        return default, winner
