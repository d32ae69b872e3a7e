"""Choose a configuration of one program: search, measure, verify, write the result."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing.guided import Beliefs
from solution.choosing.handing import (
    FILES,
    describe_changes,
    describe_choice,
    draw_search,
    hand_over,
    take_back,
)
from solution.choosing.harness import Harness
from solution.choosing.journal import RECORD, Journal, Trial
from solution.choosing.live_prior import LivePrior, open_prior
from solution.choosing.methods import OURS, describe_unled, is_led, make_proposer
from solution.choosing.proposer import Proposer
from solution.choosing.search import MEASURED, Budget, search
from solution.choosing.verdict import ROUNDS, Verdict
from solution.collecting.comparison import RULES
from solution.collecting.cpu import CpuTarget, Workers
from solution.collecting.identity import describe_machine
from solution.collecting.program_space import KINDS, ProgramSpace, make_program_space
from solution.collecting.space import name_config
from solution.collecting.target import CPU, Target, Tell
from solution.domain.vocabulary import OPTION_NAMES
from solution.programs.child import Child, ChildDiedError, Limits, choose_core
from solution.programs.compiler import check_installed
from solution.programs.given import give_arguments
from solution.programs.program import Program, Wanted, read_programs
from solution.serving.bundle import Bundle
from solution.serving.words import SAME
from solution.system.errors import InputError
from solution.system.files import locked, make_folder
from solution.system.progress import warn
from solution.system.wording import join_names
from solution.training.executors.base import Executor

PICTURE = "search.png"
VERIFYING = 0.3  # share of the time limit that is kept for timing the winner again
LEAST_VERIFYING = 20.0  # minimum number of seconds for timing the winner again
BATCH = 4  # number of configurations that are measured together
MOST = 1000  # maximum number of measurements if only a time limit is given


@dataclass(frozen=True)
class Settings:
    """Settings of a search. Raises ValueError if neither measurements nor seconds are limited."""

    measurements: int | None = MEASURED
    seconds: float | None = None
    kinds: tuple[str, ...] = ()  # what to vary: layouts, options, tiles (KINDS); empty: all
    seed: int = 0
    search: str = OURS  # name of the optimizer, see solution.choosing.methods.METHODS
    rounds: int = ROUNDS  # repetitions of the final comparison of the winner with the default
    limits: Limits = Limits()  # limits of one compilation or one timing in a child process
    replace: bool = False  # delete the folder's earlier search
    wanted: Wanted | None = None  # which program, if the file has several
    arguments: Path | None = None  # a file with the program's arguments
    each_copy: bool = False  # for a TPU: choose layouts of each copy of a repeated layer separately
    target: Target = CpuTarget()
    nodes: Executor | None = None  # cluster that compiles for a TPU; None: compile on this machine

    def __post_init__(self) -> None:
        if not (self.measurements or self.seconds):
            raise ValueError("expected a number of measurements or of seconds, found neither")


@dataclass(frozen=True)
class Chosen:
    """The result of a search: all trials, the winner and its speed-up, the files written."""

    name: str
    trials: list[Trial]
    # measured nanoseconds of the compiler's default configuration
    reference: float
    # A/B result of the winner against the default; None: see Ended
    verdict: Verdict | None
    configuration: str  # the winner, in words
    changes: str  # how the compiled winner differs from the compiled default, in words
    note: str  # what guided the search, and which errors comparisons would miss; in words
    seconds: float  # duration of the search, including the runs that it resumes
    files: list[Path] = field(default_factory=list)


def choose_program(
    path: Path, bundle: Bundle | None, folder: Path, settings: Settings, tell: Tell
) -> Chosen:
    """Find a faster configuration for a file's program. `bundle`: trained models that guide the
    search, if any. `folder` gets the journal, the result's files and a plot. `tell` shows the
    progress. Raises InputError if jax is not installed, the file has no program or several, or the
    program's default configuration cannot be compiled or timed."""
    check_installed()
    core = choose_core()
    with Child(settings.limits, core) as compiling, Child(settings.limits, core) as timing:
        program = read_program(path, compiling, settings)
        space = make_program_space(program, settings.kinds)
        proposer, note = open_search(bundle, space, settings)
        identity = {
            **identify_search(bundle, space, settings),
            "program": program.digest,
            "machine": describe_machine(),
            "comparison": RULES,
        }
        earlier = {"search": OURS, "target": CPU, "options": ", ".join(OPTION_NAMES)}
        with open_journal(folder, identity, earlier, settings, FILES) as journal:
            workers = Workers(compiling, timing)
            try:
                return _Run(space, workers, journal, folder, settings, tell).choose(proposer, note)
            except ChildDiedError as error:
                raise InputError(
                    f"{path}: its default configuration could not be timed: {error}. Expected a "
                    "program that runs within the limits."
                ) from error


def read_program(path: Path, child: Child, settings: Settings) -> Program:
    """Return the file's only program, or the one that the settings select, with the settings'
    arguments; otherwise InputError. Print the program's notes as warnings."""
    programs = list(read_programs(path, child, settings.wanted, platform=settings.target.platform))
    if len(programs) != 1:
        names = join_names([program.module.name for program in programs])
        raise InputError(
            f"{path}: holds {len(programs)} programs, expected one. Choose it with --module: "
            f"{names}."
        )
    program = give_arguments(programs[0], settings.arguments, settings.limits.megabytes)
    for words in program.notes:
        warn(f"{path}: {words}")
    return program


@contextmanager
def open_journal(
    folder: Path,
    identity: dict[str, Any],
    earlier: dict[str, Any],
    settings: Settings,
    files: Sequence[str],
) -> Iterator[Journal]:
    """Yield the journal of a search, and lock its folder meanwhile. For `identity` and `earlier`
    see `Journal.open`. If `settings.replace`, the earlier search is deleted first: its journal, its
    plot and the result's `files`. Configurations that failed because of lower limits than the
    settings' are left out of the journal, so that the search tries them again. Call this only when
    the program is known to be searchable, because a program that cannot be searched must leave the
    folder unchanged."""
    make_folder(folder)
    with locked(folder, "Wait for it, or choose another --out."):
        if settings.replace:
            # Delete only the search's files, because others in the folder are the user's.
            take_back(folder, *files, PICTURE, RECORD)
        journal = Journal.open(folder, identity, earlier)
        for trial in [*journal.trials.values()]:
            if settings.limits.are_above(trial.note):
                del journal.trials[trial.name]
        yield journal


def open_search(
    bundle: Bundle | None, space: ProgramSpace, settings: Settings
) -> tuple[Proposer, str]:
    """Return the optimizer, and a sentence that says which model or costs guide it."""
    if bundle is None or not is_led(settings.search):
        prior = LivePrior(None, Beliefs(), describe_unled(settings.search))
    else:
        prior = open_prior(bundle, space, settings.target.name)
    known = prior.score, prior.beliefs, settings.seed
    return make_proposer(settings.search, space, *known), prior.note


@dataclass(frozen=True)
class Ended:
    """The outcome of the final comparison of the winner with the default."""

    # the winner and its A/B result; None: only the default could be timed, or a process died
    found: tuple[Trial, Verdict] | None
    seconds: float  # total duration of the search


class _Run:
    """A running search with its journal and its two child processes: one compiles, one times.
    `choose` searches, verifies the winner and writes the result."""

    def __init__(
        self,
        space: ProgramSpace,
        workers: Workers,
        journal: Journal,
        folder: Path,
        settings: Settings,
        tell: Tell,
    ) -> None:
        """Compile the default configuration; time it unless the journal has its time."""
        self._space, self._journal, self._folder = space, journal, folder
        self._settings, self._tell = settings, tell
        self._begin = time.monotonic() - sum(trial.seconds for trial in journal.trials.values())
        tell("compiling the default configuration")
        name = name_config(space.default)
        default = journal.trials.get(name)
        self._harness = Harness(space, workers, settings.seed, default.time if default else None)
        if default is None:
            default = Trial(name, space.default.tolist(), self._harness.reference)
            journal.trials[name] = default
            journal.write()
        self._default = default

    def choose(self, proposer: Proposer, note: str) -> Chosen:
        """Search, verify the winner, write files; return the result. `note`: see open_search."""
        trials, note = self._search(proposer, note)
        ended = self._recall_end(trials)
        if ended is None:
            self._tell("timing the fastest again, in turns with the default")
            found = self._harness.verify(trials, self._settings.rounds)
            ended = Ended(found, time.monotonic() - self._begin)
            self._record_end(ended, trials)
        else:
            self._tell("all configurations are measured; the earlier final comparison is kept")
        files = self._write_files(ended)
        result = self._describe(trials, ended, f"{note} {self._harness.note}".rstrip())
        self._journal.result = {
            **(self._journal.result or {}), "configuration": result.configuration
        }  # fmt: skip
        self._journal.write()
        picture = self._folder / PICTURE
        ratios = np.array([trial.time for trial in trials]) / self._harness.reference
        draw_search(trials, ratios, result.name, picture)
        result.files.extend([*files, picture])
        return result

    def _search(self, proposer: Proposer, note: str) -> tuple[list[Trial], str]:
        """Search. Return all trials in the journal except the default's, and `note`, extended by
        the number of earlier trials if this search did not propose some of them."""
        # Tell the optimizer the default's time before it proposes anything.
        default, journal = self._default, self._journal
        proposer.tell(np.array([default.config], np.int32), np.array([default.time]))
        now = search(proposer, self._harness, self._make_budget(), journal, self._narrate)
        trials = [trial for trial in journal.trials.values() if trial.name != default.name]
        more = len(trials) - len(now)
        counted = f" {more} earlier measurements in this folder count too." if more else ""
        return trials, note + counted

    def _make_budget(self) -> Budget:
        """Return the budget of the search: the settings' limits, less the time for `verify`."""
        settings = self._settings
        most = settings.measurements or MOST
        if settings.seconds is None:
            return Budget(most, batch=BATCH)
        verifying = self._harness.least_seconds(settings.rounds)
        kept = max(LEAST_VERIFYING, VERIFYING * settings.seconds, verifying)
        return Budget(most, max(1.0, settings.seconds - kept), BATCH)

    def _narrate(self, trials: Sequence[Trial]) -> None:
        times = [trial.nanoseconds for trial in trials if trial.nanoseconds]
        best = f", best {min(times) / self._harness.reference:.3f} of the default" if times else ""
        self._tell(f"measured {len(trials)}, {len(trials) - len(times)} failed{best}")

    def _record_end(self, ended: Ended, trials: Sequence[Trial]) -> None:
        """Store the outcome, with the names of the trials that were compared, in the journal."""
        winner, verdict = ended.found or (None, None)
        self._journal.result = {
            "trials": [trial.name for trial in trials],
            "rounds": self._settings.rounds,
            "winner": winner and winner.name,
            "verdict": verdict and asdict(verdict),
            "seconds": ended.seconds,
        }

    def _recall_end(self, trials: Sequence[Trial]) -> Ended | None:
        """Return the journal's final comparison if it was made for exactly these trials and this
        number of repetitions, otherwise None. Comparing again would give chance a second try."""
        known = self._journal.result or {}
        now = {"trials": [trial.name for trial in trials], "rounds": self._settings.rounds}
        if "verdict" not in known or any(known.get(name) != value for name, value in now.items()):
            return None
        if known["verdict"] is None:
            return Ended(None, known["seconds"])
        winner = self._journal.trials[known["winner"]]
        return Ended((winner, Verdict(**known["verdict"])), known["seconds"])

    def _write_files(self, ended: Ended) -> Sequence[Path]:
        """Write the winner's files if it is faster than the default, and return their paths;
        otherwise delete the files of an earlier result."""
        if ended.found is None or not ended.found[1].is_gain:
            take_back(self._folder, *FILES)
            return ()
        winner, verdict = ended.found
        facts = {"gain": verdict.gain, "interval": [verdict.low, verdict.high]}
        return hand_over(self._space, np.array(winner.config, np.int32), self._folder, facts)

    def _describe(self, trials: list[Trial], ended: Ended, note: str) -> Chosen:
        verdict, configuration, changes = None, SAME, "Nothing changes."
        if ended.found is not None:
            winner, verdict = ended.found
            config = np.array(winner.config, np.int32)
            before, after = map(self._harness.optimised, (self._space.default, config))
            changes = describe_changes(before, after) if before and after else ""
            configuration = describe_choice(self._space, config)
        return Chosen(
            self._space.program.name, trials, self._harness.reference, verdict, configuration,
            changes, note, ended.seconds,
        )  # fmt: skip


def identify_search(
    bundle: Bundle | None, space: ProgramSpace, settings: Settings
) -> dict[str, Any]:
    """Return values that must be equal for a search to be resumed. The caller adds others, such as
    the program's digest."""
    files = bundle and repr(sorted(bundle.record.files.items())).encode()
    options = {"options": ", ".join(space.option_choices)} if space.option_choices else {}
    return {
        **options,
        "over": ", ".join(kind for kind in KINDS if kind in settings.kinds) or "all",
        "bundle": files and hashlib.sha256(files).hexdigest(),
        "jax": check_installed(),
        "seed": settings.seed,
        "search": settings.search,
        "target": settings.target.name,
    }
