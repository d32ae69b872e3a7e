"""Choose a configuration of one program for a TPU, by the estimates of its compiler.

Nothing is measured: the result holds the compiler's estimates. The script `verify.py`, which is
written into the same folder, measures on a machine with the TPU; `take_verdict` stores its
measurements in the search's record.
"""

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing import choose, tpu_files
from solution.choosing.handing import describe_choice, draw_search, take_back
from solution.choosing.journal import Journal, Trial
from solution.choosing.measured import list_measured
from solution.choosing.methods import OURS
from solution.choosing.nodes import ClusterEstimator
from solution.choosing.proposer import Proposer
from solution.choosing.savings import Savings, compare_compiled
from solution.choosing.search import Budget, search
from solution.choosing.verdict import LEAST
from solution.collecting.program_space import TILES, check_kinds
from solution.collecting.space import name_config
from solution.collecting.target import CPU, Tell
from solution.collecting.tpu.asking import REQUEST_RULES, find_fixed_boundary
from solution.collecting.tpu.devices import check_module
from solution.collecting.tpu.duration import Duration
from solution.collecting.tpu.estimate import CHIPS
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.labelling import EstimatingWorkers
from solution.collecting.tpu.space import TpuSpace, make_search_space
from solution.collecting.tpu.target import DEVICES, TpuTarget, find_libtpu_version
from solution.domain.graph import name_estimate
from solution.programs.compiler import check_installed
from solution.serving.bundle import Bundle
from solution.serving.words import SAME
from solution.system.errors import InputError
from solution.system.terminal import say
from solution.system.wording import spell

# what a search minimises
TIME, MEMORY = "time", "memory"
# values of the journal's entry "layers": do all copies of a repeated layer get the same layouts?
COPIES_TOGETHER, EACH_ALONE = "decided once for all copies", "each decided alone"
# Finds, in the compiler's message about a program that does not fit in memory, the number and unit
# of the bytes that the program needs, then of the bytes that the chip has.
USED = re.compile(r"\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Estimated:
    """The result of a search that minimises the estimates of a TPU's compiler."""

    name: str
    target: str
    goal: str  # TIME or MEMORY
    trials: list[Trial]  # all trials except the default's
    default: Trial
    best: Trial | None  # None: nothing better than the default was found
    configuration: str  # the best configuration in words; the default if `best` is None
    # how the best differs from the default; None: there is no best, or one of them has no estimate
    savings: Savings | None
    note: str  # what guided the search, and what verify.py cannot do; in words
    seconds: float  # duration of the search, including the runs that it resumes
    limit: int  # bytes of the chip's memory
    # records of verify.py's runs: of the chosen configuration, and {earlier choice: its records}
    measured: list[dict[str, Any]] = field(default_factory=list)
    earlier: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def sentence(self) -> str:
        """Describe the result in words that claim no more than the compiler's estimate."""
        counted = f"{len(self.trials)} configurations"
        if self.best is None and self.default.nanoseconds is None:
            return (
                f"The compiler for {self.target} refuses the program still: of {counted} none "
                f"takes at least 0.5% less memory than {(self.default.memory or 0) / 1e6:,.1f} MB, "
                f"and the chip has {self.limit / 1e6:,.1f} MB."
            )
        if self.best is None:
            return (
                f"Of {counted} none was found that the compiler estimates to take at least 0.5% "
                f"less {self.goal} than its default. Leave the program as the compiler has it."
            )
        if self.goal == MEMORY:
            return self._describe_memory(self.default.memory or 0, self.best)
        before, after = self.default.time, self.best.time
        return (
            f"The compiler for {self.target} estimates {after / 1000:,.1f} us instead of "
            f"{before / 1000:,.1f} us: {1 - after / before:.1%} less, the least of {counted}. An "
            f"estimate is no measurement: run verify.py on a TPU."
        )

    def _describe_memory(self, before: int, best: Trial) -> str:
        after = best.memory or 0
        words = (
            f"The compiler for {self.target} needs {after / 1e6:,.1f} MB instead of "
            f"{before / 1e6:,.1f} MB, the least of {len(self.trials)} configurations"
        )
        if best.nanoseconds is None:
            return (
                f"{words}, and refuses the program still: the chip has {self.limit / 1e6:,.1f} MB."
            )
        if self.default.nanoseconds is None:
            return f"{words}. With that it takes the program, which it refused as it is."
        ratio = best.nanoseconds / self.default.nanoseconds
        return f"{words}. Its estimate of the time is {ratio:.3f} of the default's."


def choose_for_tpu(
    path: Path,
    bundle: Bundle | None,
    folder: Path,
    settings: choose.Settings,
    goal: str,
    tell: Tell,
) -> Estimated:
    """Find a configuration of a file's program that needs less `goal` (TIME or MEMORY) than the
    default, as the compiler of a TPU (`settings.target`) estimates. The bundle's models, if any,
    guide the search; `tell` shows its progress. Raises InputError if the target cannot be used, the
    file does not hold exactly one program, or the compiler refuses the default configuration and
    gives no estimate of the `goal` for it."""
    check_installed()
    check_kinds(settings.kinds)
    assert isinstance(settings.target, TpuTarget)
    settings.target.check(TILES if TILES in settings.kinds else "")
    # keep a cluster open for all compilations
    cluster = settings.nodes.open() if settings.nodes else nullcontext()
    with cluster, settings.target.open_workers(settings.limits) as workers:
        program = choose.read_program(path, workers.compiling, settings)
        space = make_search_space(program, settings.kinds, each_copy=settings.each_copy)
        # raise InputError for a parameter's unknown type now, not after the search
        tpu_files.describe_parameters(space)
        proposer, note = choose.open_search(bundle, space, settings)
        identity = _identify(space, bundle, settings, goal)
        earlier = {"target": CPU, "layers": EACH_ALONE}
        with choose.open_journal(folder, identity, earlier, settings, tpu_files.FILES) as journal:
            run = _Run(space, workers, journal, folder, settings, goal, tell)
            return run.choose(proposer, note)


class Estimates:
    """A measurer for `search` that only compiles; a trial's time is the compiler's estimate."""

    def __init__(self, space: TpuSpace, estimator: Estimator | ClusterEstimator) -> None:
        self._space, self._estimator = space, estimator
        self._boundary = find_fixed_boundary(space.program.module)
        self.processor_seconds = 0.0  # sum over all compilations that `measure` has done

    def measure(self, configs: np.ndarray) -> list[Trial]:
        """Compile configurations (k, sites) in parallel; return a trial for each."""
        begin = time.monotonic()
        answers = self.compile(configs)
        self.processor_seconds += sum(answer.processor_seconds for answer in answers)
        seconds = (time.monotonic() - begin) / len(configs)
        return [
            Trial(name_config(row), row.tolist(), answer.nanoseconds, answer.refused, seconds,
                  find_memory(answer), answer.processor_seconds, answer.passes_seconds)
            for row, answer in zip(configs, answers, strict=True)
        ]  # fmt: skip

    def compile(self, configs: np.ndarray) -> list[Answer]:
        """Return the compiler's answers for configurations (k, sites)."""
        prepared = (self._space.prepare(row) for row in configs)
        asked = [(module, flags.options, self._boundary) for module, flags in prepared]
        return list(self._estimator.estimate_many(asked))


def find_memory(answer: Answer) -> int | None:
    """Return the bytes of the chip's memory that a program needs; None if unknown. They are also
    known if the compiler refuses the program because it needs too many."""
    if answer.compiled is not None:
        return answer.compiled.memory_bytes
    if answer.is_out_of_memory and (found := USED.search(answer.refused)):
        return round(float(found[1]) * UNITS[found[2]])
    return None


def find_limit(trials: Sequence[Trial], target: TpuTarget) -> int:
    """Return the bytes of the chip's memory: the number that a trial's out-of-memory message states
    or, if no message states it, the nominal memory of the TPU generation."""
    stated = (USED.search(trial.note) for trial in trials)
    return next(
        (round(float(found[3]) * UNITS[found[4]]) for found in stated if found),
        round(CHIPS[target.generation].gigabytes * 1e9),
    )


class _Run:
    """A running search with its journal and its compiling processes. `choose` minimises the
    compiler's estimates and writes the result."""

    def __init__(
        self,
        space: TpuSpace,
        workers: EstimatingWorkers,
        journal: Journal,
        folder: Path,
        settings: choose.Settings,
        goal: str,
        tell: Tell,
    ) -> None:
        """Compile the default configuration unless the journal has it. Raises InputError if the
        compiler gives no estimate of the `goal` (TIME or MEMORY) for it."""
        self._space, self._journal, self._folder = space, journal, folder
        self._settings, self._goal, self._tell = settings, goal, tell
        self._target = workers.estimator.target
        estimator: Estimator | ClusterEstimator = workers.estimator
        processes, self._batch = workers.processes, choose.BATCH
        if nodes := settings.nodes:
            estimator = ClusterEstimator(self._target, settings.limits, nodes)
            processes = nodes.slots
            self._batch = max(choose.BATCH, processes)
        self._estimates = Estimates(space, estimator)
        self._begin, self._processes = time.monotonic(), min(self._batch, processes)
        self._duration = Duration(
            space, settings.measurements or 0, tries_options_first=settings.search == OURS
        )
        tell("compiling the default configuration")
        name = name_config(space.default)
        default = journal.trials.get(name)
        is_new = default is None
        if default is None:
            (default,) = self._estimates.measure(space.default[None])
        self._check_default(default)
        if is_new:
            journal.trials[name] = default
            journal.write()
        self._default = default
        # Predict no duration from a refused program, because its compilation stopped early.
        if default.nanoseconds is not None:
            self._duration.begin(default.processor_seconds or 0.0, default.passes_seconds or 0.0)
        if is_new and self._duration.is_known:
            say(self._duration.describe(space.program.name, self._processes))

    def choose(self, proposer: Proposer, note: str) -> Estimated:
        """Search, write the files and return the result. `note`: see choose.open_search."""
        default, journal = self._default, self._journal
        proposer.tell(np.array([default.config], np.int32), np.array([self._value(default)]))
        most = self._settings.measurements or choose.MOST
        budget = Budget(most, self._settings.seconds or math.inf, self._batch)
        search(proposer, self._estimates, budget, journal, self._narrate, self._value)
        trials = [trial for trial in journal.trials.values() if trial.name != default.name]
        best = self._find_best(trials)
        savings = self._compare(best)
        result = self._describe(trials, best, savings, note)
        files = self._hand_over(result)
        picture = self._folder / choose.PICTURE
        values = [self._value(trial) for trial in trials]
        first = self._value(default)
        ratios = np.array(values) / first
        draw_search(trials, ratios, result.name, picture, self._goal, "estimated")
        result.files.extend([*files, picture])
        return result

    def _value(self, trial: Trial) -> float:
        """Return the trial's nanoseconds or bytes, which the search minimises; NaN if unknown."""
        if self._goal == TIME:
            return trial.time
        return math.nan if trial.memory is None else float(trial.memory)

    def _check_default(self, default: Trial) -> None:
        if self._value(default) > 0:
            return
        if self._value(default) == 0:
            raise InputError(
                f"{self._space.program.name}: the compiler for {self._target.name} estimates a "
                f"{self._goal} of 0 for the program as it is: nothing is faster or smaller. "
                "Expected a program that computes more than a few scalars."
            )
        advice = "Expected one that it compiles within the limits."
        if self._goal == TIME and default.memory is not None:
            advice = "Add --memory to search for a configuration that fits."
        raise InputError(
            f"{self._space.program.name}: the compiler for {self._target.name} does not take the "
            f"program as it is: {default.note.rstrip('.')}. {advice}"
        )

    def _narrate(self, trials: Sequence[Trial]) -> None:
        values = [value for trial in trials if not math.isnan(value := self._value(trial))]
        refused = len(trials) - len(values)
        best = min(values, default=math.nan) / self._value(self._default)
        self._tell(
            f"compiled {len(trials)}, {refused} refused"
            + (f", best estimate {best:.3f} of the default's {self._goal}" if values else "")
            + self._follow(trials)
        )

    def _follow(self, trials: Sequence[Trial]) -> str:
        """Return how long the rest of the search will take, in words for the progress line. If the
        predicted duration of the whole search turns out to be far off, print a correction once."""
        duration = self._duration
        if not duration.is_known:
            return ""
        for trial in trials[duration.done :]:
            duration.add(trial.processor_seconds or 0.0)
        if words := duration.correct(self._space.program.name, self._processes):
            say(words)
        # pace: wall-clock seconds per processor second of compiling. Once it can be measured, it
        # includes the time of the optimizer and of other programs.
        spent, pace = self._estimates.processor_seconds, 1 / self._processes
        if spent > 1:
            pace = (time.monotonic() - self._begin) / spent
        return f", about {spell(duration.left * pace)} left"

    def _find_best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the trial with the smallest time or memory (see _value); ties go to trials that
        fit into memory, then to the smaller time. Return None if it is less than 0.5% better than
        the default, unless it fits into memory and the default does not."""
        known = [trial for trial in trials if not math.isnan(self._value(trial))]
        ranks = {t.name: (self._value(t), t.nanoseconds is None, t.nanoseconds or 0) for t in known}
        best = min(known, key=lambda trial: ranks[trial.name], default=None)
        if best is None:
            return None
        fits = best.nanoseconds is not None and self._default.nanoseconds is None
        is_better = self._value(best) * LEAST <= self._value(self._default)
        return best if fits or is_better else None

    def _compare(self, best: Trial | None) -> Savings | None:
        """Return the changes from the default to the `best` program; None if `best` is None or an
        estimate is missing. Both are compiled again, which is fast: the compiler has a cache."""
        if best is None or best.nanoseconds is None or self._default.nanoseconds is None:
            return None
        self._tell("comparing the compiled programs")
        configs = np.array([self._default.config, best.config], np.int32)
        compiled = [answer.compiled for answer in self._estimates.compile(configs)]
        if compiled[0] is None or compiled[1] is None:
            return None
        estimates = self._default.nanoseconds, best.nanoseconds
        return compare_compiled(compiled[0], compiled[1], estimates, self._target)

    def _describe(
        self, trials: list[Trial], best: Trial | None, savings: Savings | None, note: str
    ) -> Estimated:
        space = self._space
        configuration = SAME
        if best is not None:
            configuration = describe_choice(space, np.array(best.config, np.int32))
        notes = [space.describe_copies(), note, *_find_limits_of_verification(space)]
        seconds = sum(trial.seconds for trial in (self._default, *trials))
        return Estimated(
            space.program.name, self._target.name, self._goal, trials, self._default, best,
            configuration, savings, " ".join(filter(None, notes)), seconds,
            find_limit([self._default, *trials], self._target),
        )  # fmt: skip

    def _hand_over(self, result: Estimated) -> list[Path]:
        """Write the result into the journal. Write the best configuration's files and return their
        paths; if there is no best configuration, delete the files of an earlier result."""
        journal, best = self._journal, result.best
        known = list_measured(journal.result)
        if best is None:
            result.earlier.update(known)
            journal.result = {
                "winner": None, "choice": None, "measured": [], "earlier": result.earlier,
            }  # fmt: skip
            journal.write()
            take_back(self._folder, *tpu_files.FILES)
            return []
        config = np.array(best.config, np.int32)
        choice = tpu_files.identify_choice(self._space, config, self._target.name)
        result.measured.extend(known.pop(choice, []))
        result.earlier.update(known)
        facts = {
            "choice": choice,
            "target": self._target.name,
            "devices": DEVICES[self._target.generation],
            "source": name_estimate(self._target.name, f"libtpu {find_libtpu_version()}"),
            "goal": self._goal,
            "default": _record(result.default),
            "chosen": _record(best),
            "changes": result.savings.to_records() if result.savings else [],
        }
        files = tpu_files.hand_over_estimated(self._space, config, self._folder, facts)
        journal.result = {
            "winner": best.name, "choice": choice, "configuration": result.configuration,
            "measured": result.measured, "earlier": result.earlier,
        }  # fmt: skip
        journal.write()
        return files


def _record(trial: Trial) -> dict[str, Any]:
    """Return a trial's estimated time and memory, as an entry for choice.json."""
    return {"estimated_nanoseconds": trial.nanoseconds, "memory_bytes": trial.memory}


def _find_limits_of_verification(space: TpuSpace) -> Iterator[str]:
    """Yield sentences on what verify.py cannot do with the program, or does otherwise."""
    checked = check_module(space.program.plain)
    if not isinstance(checked, str) and checked.devices.count > 1:
        yield (
            f"The program is for {checked.devices.count} devices; verify.py runs it on one, so it "
            "cannot run it as it is."
        )
    if find_fixed_boundary(space.program.module) is not None:
        yield (
            "The module fixes the layouts of its parameters and results; verify.py times it with "
            "those that jax gives arrays."
        )


def _identify(
    space: TpuSpace, bundle: Bundle | None, settings: choose.Settings, goal: str
) -> dict[str, Any]:
    """Return the values that must be equal for a search to be resumed; the machine may differ."""
    return {
        **choose.identify_search(bundle, space, settings),
        "program": space.program.module_digest,
        "libtpu": find_libtpu_version(),
        "request_rules": REQUEST_RULES,
        "goal": goal,
        "layers": COPIES_TOGETHER if space.describe_copies() else EACH_ALONE,
    }
