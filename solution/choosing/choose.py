"""Choose a configuration of one program: search, measure, verify, write the result."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from solution.choosing.guided import Beliefs
from solution.choosing.handing import (
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
from solution.collecting.cpu import Workers
from solution.collecting.identity import describe_machine
from solution.collecting.program_space import KINDS, ProgramSpace, make_program_space
from solution.collecting.space import name_config
from solution.programs.child import Child, ChildDiedError, Limits, choose_core
from solution.programs.compiler import check_installed
from solution.programs.given import give_arguments
from solution.programs.program import Program, Wanted, read_programs
from solution.serving.bundle import Bundle
from solution.system.errors import InputError
from solution.system.files import locked, make_folder
from solution.system.progress import warn
from solution.system.wording import join_names

PICTURE = "search.png"
VERIFYING = 0.3  # share of the time that is kept for timing the winner again
LEAST_VERIFYING = 20.0  # seconds; at least this long
BATCH = 4
MOST = 1000  # measurements if only a time is given

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Settings of a search: a number of measurements, a time limit, or both (the first to end).

    Raises ValueError if neither is given.
    """

    measurements: int | None = MEASURED
    seconds: float | None = None
    kinds: tuple[str, ...] = ()
    seed: int = 0
    search: str = OURS  # a name in solution.choosing.methods.METHODS
    rounds: int = ROUNDS  # repetitions of the final comparison of the winner with the default
    limits: Limits = Limits()
    replace: bool = False
    wanted: Wanted | None = None  # which program, if the file has several
    arguments: Path | None = None  # a file with the program's arguments

    def __post_init__(self) -> None:
        if not (self.measurements or self.seconds):
            raise ValueError("expected a number of measurements or of seconds, found neither")


@dataclass(frozen=True)
class Chosen:
    """The result of a search, in words and numbers."""

    name: str
    trials: list[Trial]
    reference: float  # nanoseconds of the default
    verdict: Verdict | None  # None: no other configuration could be timed to the end
    configuration: str
    changes: str
    note: str  # what guided the search
    seconds: float  # total duration, earlier sessions included
    files: list[Path] = field(default_factory=list)


def choose_program(
    path: Path, bundle: Bundle | None, folder: Path, settings: Settings, tell: Tell
) -> Chosen:
    """Find a faster configuration for the program in a file.

    Args:
        bundle: its models guide the search; None for a search without a model.

    Raises:
        InputError: jax is not installed, the file holds no program or several, or the program
            cannot be compiled in its default configuration.
    """
    check_installed()
    core = choose_core()
    with Child(settings.limits, core) as compiling, Child(settings.limits, core) as timing:
        program = give_arguments(
            read_program(path, compiling, settings.wanted),
            settings.arguments,
            settings.limits.megabytes,
        )
        for words in program.notes:
            warn(f"{path}: {words}")
        space = make_program_space(program, settings.kinds)
        led = _open_search(bundle, space, settings)
        identity = _identify(program, bundle, settings)
        # Only now: an input that cannot be searched must not create or change the folder.
        make_folder(folder)
        with locked(folder, "Wait for it, or choose another --out."):
            if settings.replace:
                take_back(folder, PICTURE, RECORD)  # other files in the folder are the user's
            journal = Journal.open(folder, identity, {"search": OURS})
            workers = Workers(compiling, timing)
            try:
                return _choose(space, led, workers, journal, folder, settings, tell)
            except ChildDiedError as error:
                raise InputError(
                    f"{path}: timing the program as it is failed: {error}. Expected one that runs "
                    "within the limits."
                ) from error


def read_program(path: Path, child: Child, wanted: Wanted | None) -> Program:
    """Return the file's only program, or the one selected by `wanted`; otherwise InputError."""
    programs = list(read_programs(path, child, wanted))
    if len(programs) != 1:
        names = join_names([program.module.name for program in programs])
        raise InputError(
            f"{path}: holds {len(programs)} programs, expected one. Choose it with --module: "
            f"{names}."
        )
    return programs[0]


class Search(NamedTuple):
    """The optimizer, and in words what guides it."""

    proposer: Proposer
    note: str


def _open_search(bundle: Bundle | None, space: ProgramSpace, settings: Settings) -> Search:
    if bundle is None or not is_led(settings.search):
        prior = LivePrior(None, Beliefs(), describe_unled(settings.search))
    else:
        prior = open_prior(bundle, space)
    known = prior.score, prior.beliefs, settings.seed
    return Search(make_proposer(settings.search, space, *known), prior.note)


def _choose(
    space: ProgramSpace,
    led: Search,
    workers: Workers,
    journal: Journal,
    folder: Path,
    settings: Settings,
    tell: Tell,
) -> Chosen:
    begin = time.monotonic()
    earlier = sum(trial.seconds for trial in journal.trials.values())
    tell("compiling the program as it is")
    harness, default = _time_default(space, workers, journal, settings)
    trials, note = _search(led, default, harness, journal, settings, tell)
    ended = _recall_end(journal, trials, settings)
    if ended is None:
        tell("timing the best again, beside the default")
        found = harness.verify(trials, settings.rounds)
        ended = Ended(found, earlier + time.monotonic() - begin)
        journal.result = _describe_end(ended, trials, settings)
    else:
        tell("nothing is left to measure, and what was timed at the end stands")
    files = _hand_over(space, ended, folder)
    result = _describe(space, harness, trials, ended, f"{note} {harness.note}".rstrip())
    journal.result = {**(journal.result or {}), "configuration": result.configuration}
    journal.write()
    draw_search(trials, harness.reference, space.program.name, folder / PICTURE)
    result.files.extend([*files, folder / PICTURE])
    return result


def _time_default(
    space: ProgramSpace, workers: Workers, journal: Journal, settings: Settings
) -> tuple[Harness, Trial]:
    """Return the benchmark harness and the default's trial, which is timed once in all sessions."""
    own = space.default
    default = journal.trials.get(name_config(own))
    harness = Harness(space, workers, settings.seed, default.time if default else None)
    if default is None:
        default = Trial(name_config(own), own.tolist(), harness.reference)
        journal.trials[default.name] = default
        journal.write()
    return harness, default


def _search(
    led: Search,
    default: Trial,
    harness: Harness,
    journal: Journal,
    settings: Settings,
    tell: Tell,
) -> tuple[list[Trial], str]:
    """Search, and return all trials except the default's, and in words what guided the search.

    Trials of earlier sessions are returned too, even if fewer or others are asked for now: one of
    them may be the best.
    """
    # The optimizer learns the default first: everything is compared with it.
    led.proposer.tell(np.array([default.config], np.int32), np.array([default.time]))
    budget = _budget(settings, harness.least_seconds(settings.rounds))
    asked = search(led.proposer, harness, budget, journal, _narrate(harness, tell))
    trials = [trial for trial in journal.trials.values() if trial.name != default.name]
    more = len(trials) - len(asked)
    counted = f" What was measured here before counts too: {more} more." if more else ""
    return trials, led.note + counted


@dataclass(frozen=True)
class Ended:
    """The outcome of the final comparison."""

    found: tuple[Trial, Verdict] | None  # the result of Harness.verify
    seconds: float  # total duration of the search


def _describe_end(ended: Ended, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
    """Return the outcome as the journal stores it, with the trials that it is valid for."""
    winner, verdict = ended.found or (None, None)
    return {
        "trials": [trial.name for trial in trials],
        "rounds": settings.rounds,
        "winner": winner and winner.name,
        "verdict": verdict and asdict(verdict),
        "seconds": ended.seconds,
    }


def _recall_end(journal: Journal, trials: Sequence[Trial], settings: Settings) -> Ended | None:
    """Return the stored outcome if the trials and repetitions are the same as now; else None.

    The comparison is not repeated, because that would give chance a second try. Journals of older
    versions have no outcome.
    """
    known = journal.result or {}
    wanted = {"trials": [trial.name for trial in trials], "rounds": settings.rounds}
    if "verdict" not in known or any(known.get(name) != value for name, value in wanted.items()):
        return None
    if known["verdict"] is None:
        return Ended(None, known["seconds"])
    return Ended((journal.trials[known["winner"]], Verdict(**known["verdict"])), known["seconds"])


def _hand_over(space: ProgramSpace, ended: Ended, folder: Path) -> Sequence[Path]:
    """Write the winner's files into the folder if it is faster than the default; return them.

    If it is not, delete the files of an earlier result.
    """
    if ended.found is None or not ended.found[1].is_gain:
        take_back(folder)
        return ()
    winner, verdict = ended.found
    facts = {"gain": verdict.gain, "interval": [verdict.low, verdict.high]}
    return hand_over(space, np.array(winner.config, np.int32), folder, facts)


def _describe(
    space: ProgramSpace, harness: Harness, trials: list[Trial], ended: Ended, note: str
) -> Chosen:
    verdict, configuration, changes = None, "as the compiler has it", "Nothing changes."
    if ended.found is not None:
        winner, verdict = ended.found
        config = np.array(winner.config, np.int32)
        before, after = harness.optimised(space.default), harness.optimised(config)
        changes = describe_changes(before, after) if before and after else ""
        configuration = describe_choice(space, config)
    return Chosen(
        space.program.name, trials, harness.reference, verdict, configuration, changes, note,
        ended.seconds,
    )  # fmt: skip


def _budget(settings: Settings, verifying: float) -> Budget:
    """Return the search's budget, less the time for verification (at least `verifying` seconds)."""
    most = settings.measurements or MOST
    if settings.seconds is None:
        return Budget(most, batch=BATCH)
    kept = max(LEAST_VERIFYING, VERIFYING * settings.seconds, verifying)
    return Budget(most, max(1.0, settings.seconds - kept), BATCH)


def _narrate(harness: Harness, tell: Tell) -> Callable[[Sequence[Trial]], None]:
    def say(trials: Sequence[Trial]) -> None:
        times = [trial.nanoseconds for trial in trials if trial.nanoseconds]
        best = f", best {min(times) / harness.reference:.3f} of the default" if times else ""
        failed = len(trials) - len(times)
        tell(f"measured {len(trials)}, {failed} failed{best}")

    return say


def _hash_bundle(bundle: Bundle) -> str:
    return hashlib.sha256(repr(sorted(bundle.record.files.items())).encode()).hexdigest()


def _identify(program: Program, bundle: Bundle | None, settings: Settings) -> dict[str, Any]:
    """Return what must be equal for a search to be resumed."""
    return {
        "program": program.digest,
        "over": ", ".join(kind for kind in KINDS if kind in settings.kinds) or "all",
        "bundle": bundle and _hash_bundle(bundle),
        "jax": check_installed(),
        "machine": describe_machine(),
        "seed": settings.seed,
        "search": settings.search,
        "comparison": RULES,
    }
