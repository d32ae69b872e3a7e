"""Measure configurations of a program on this machine, and verify the fastest.

A proposed configuration is compiled in one child process, and its results are compared with those
of the default configuration. If they agree, the configuration is timed in another child process, in
passes that run the configurations of the batch and the default in a random order. The reported time
of a configuration is its shortest run time / the default's shortest run time in the same batch x
the default's time at the start of the search. If the machine slows down, both run times grow, so
times of different batches remain comparable.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from solution.choosing.journal import Trial
from solution.choosing.verdict import ROUNDS, Verdict, judge
from solution.collecting.child import WARM_UPS, Compile, Optimise
from solution.collecting.cpu import Builder, Workers
from solution.collecting.journal import SOUND
from solution.collecting.loaded import Loaded
from solution.collecting.program_space import ProgramSpace
from solution.collecting.space import name_config
from solution.collecting.timing import MIN_RUNS
from solution.programs.child import ChildDiedError, Refusal

# A pass visits every executable of a batch, in random order. A batch gets PASSES, or fewer after
# PASS_SECONDS, but at least LEAST_PASSES; likewise for a repetition of the final comparison
# (FINAL_...). Slow programs get fewer passes, because their times vary less.
PASSES, LEAST_PASSES, PASS_SECONDS = 16, 4, 2.0
FINAL_PASSES, LEAST_FINAL, FINAL_SECONDS = 30, 4, 5.0
FINALISTS = 3  # number of fastest configurations that `verify` times again
DEFAULT, WINNER = "default", "winner"  # names of executables
COPIES = 3  # copies of each executable in a repetition; addresses affect times: the fastest counts


class Built(NamedTuple):
    """The outcome of compiling a configuration and comparing its results with the default's."""

    executable: bytes  # empty if compiling failed or the results are wrong
    note: str  # why there is no executable
    seconds: float


class Harness:
    """The benchmark harness of one program: one child process compiles it, another times it."""

    def __init__(
        self, space: ProgramSpace, workers: Workers, seed: int = 0, reference: float | None = None
    ) -> None:
        """Compile and load the program in its default configuration. `reference`: the default's
        nanoseconds as the journal of a resumed search has them; None: time the default now. All
        times are scaled to it. Raises InputError if the program cannot be compiled."""
        self._space, self._workers = space, workers
        self._generator = np.random.default_rng(seed)
        self._builder = Builder(
            workers.compiling, space.program, needs_edges=space.product is not None
        )
        self._default = self._builder.open().executable
        self._kept: dict[str, bytes] = {}
        self._deaths: dict[str, str] = {}  # {configuration's name: why it could not be timed}
        self._loaded = self._load_default()
        # nanoseconds of the default configuration when it was first timed
        self.reference = reference or self._alternate([DEFAULT])[DEFAULT]

    def measure(self, configs: np.ndarray) -> list[Trial]:
        """Compile, compare and time configurations (k, sites); trials that fail have a note."""
        begin = time.monotonic()
        names = [name_config(row) for row in configs]
        built = [self._build(name, row) for name, row in zip(names, configs, strict=True)]
        # Divide the time that was spent on all configurations together equally among them.
        common = (time.monotonic() - begin - sum(one.seconds for one in built)) / len(built)
        begin = time.monotonic()
        times = self._time({n: b.executable for n, b in zip(names, built, strict=True)})
        common += (time.monotonic() - begin) / len(built)
        return [
            Trial(name, row.tolist(), times.get(name), one.note or self._deaths.get(name, ""),
                  one.seconds + common)
            for name, row, one in zip(names, configs, built, strict=True)
        ]  # fmt: skip

    def verify(self, trials: Sequence[Trial], rounds: int = ROUNDS) -> tuple[Trial, Verdict] | None:
        """Time the fastest trials again to find the winner, then time the winner and the default in
        `rounds` repetitions; return the winner and its A/B result. Each step uses new runs, so that
        the selection does not bias the result. None if only the default has a time, or a process
        dies."""
        default = name_config(self._space.default)
        timed = [t for t in trials if t.nanoseconds and t.name != default]
        finalists = sorted(timed, key=lambda t: t.time)[:FINALISTS]
        executables = {t.name: self._rebuild(t) for t in finalists}
        times = self._time(executables)
        if not times:
            return None
        winner = min((t for t in finalists if t.name in times), key=lambda t: times[t.name])
        pairs = [self._make_round(executables[winner.name]) for _ in range(rounds)]
        if None in pairs:
            return None
        return winner, judge(*np.array(pairs).T)

    def optimised(self, config: np.ndarray) -> bytes:
        """Return the serialized module after all optimizations; b"" if compiling fails."""
        try:
            reply = self._workers.compiling.ask(Optimise(*self._space.prepare(config)))
        except ChildDiedError:
            return b""
        return b"" if isinstance(reply, Refusal) else bytes(reply)

    def least_seconds(self, rounds: int = ROUNDS) -> float:
        """Return the minimum seconds that `verify` needs: for the fewest possible passes."""
        # runs of an executable: in each pass one untimed and at least MIN_RUNS timed
        visits = LEAST_FINAL * (1 + MIN_RUNS)
        return rounds * 2 * COPIES * (WARM_UPS + visits) * self.reference / 1e9

    @property
    def note(self) -> str:
        """Return a sentence on errors that the comparison of results cannot detect; usually ""."""
        return self._builder.note

    def _build(self, name: str, config: np.ndarray) -> Built:
        begin = time.monotonic()
        status, note, compiled = self._builder.build(Compile(*self._space.prepare(config)))
        seconds = time.monotonic() - begin
        if status != SOUND:
            return Built(b"", f"{status}: {note}", seconds)
        self._kept[name] = compiled.executable
        return Built(compiled.executable, "", seconds)

    def _rebuild(self, trial: Trial) -> bytes:
        """Return the trial's executable, compiled again if needed; b"" if that fails."""
        if trial.name not in self._kept:
            self._build(trial.name, np.array(trial.config, np.int32))
        return self._kept.get(trial.name, b"")

    def _load_default(self) -> Loaded:
        loaded = Loaded(self._workers.timing, self._builder.arguments, self._bury)
        loaded.add(DEFAULT, self._default)
        return loaded

    def _bury(self, name: str, reason: str) -> None:
        """Record why an executable cannot be timed; raise ChildDiedError for the default."""
        if name == DEFAULT:
            raise ChildDiedError(reason)
        self._deaths[name] = f"died while it was timed: {reason}"

    def _time(self, executables: dict[str, bytes]) -> dict[str, float]:
        """Return {name: nanoseconds} of named executables, scaled by the default's time in the same
        batch. Executables that cannot run are left out (see `_deaths`)."""
        self._loaded.keep([DEFAULT])
        for name, executable in executables.items():
            if executable:
                self._loaded.add(name, executable)
        smallest: dict[str, float] = {}
        while len(self._loaded.names) > 1 and not smallest:
            smallest = self._alternate(self._loaded.names)
        return {
            name: time * self.reference / smallest[DEFAULT]
            for name, time in smallest.items()
            if name != DEFAULT
        }

    def _alternate(self, names: Sequence[str], *, is_final: bool = False) -> dict[str, float]:
        """Run executables in passes of random order; return {name: smallest nanoseconds}, or {} if
        an executable kills the process. `is_final`: use FINAL_PASSES, not PASSES."""
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
        """Return the smallest nanoseconds of the default and of the winner, timed in a new process;
        None if the process dies."""
        self._workers.timing.end()
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
        default, winner = (min(smallest[key] for key in copies) for copies in keys.values())
        return default, winner
