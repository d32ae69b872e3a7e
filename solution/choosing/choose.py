"""Choose a configuration of one program: search, measure, verify, hand over."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from solution.choosing.changes import describe_changes
from solution.choosing.guided import Beliefs
from solution.choosing.handing import describe_choice, hand_over, take_back
from solution.choosing.journal import RECORD, Journal, Trial
from solution.choosing.live_prior import LivePrior, open_prior
from solution.choosing.machine import Machine
from solution.choosing.methods import OURS, describe_unled, is_led, make_proposer
from solution.choosing.picture import draw_search
from solution.choosing.program_space import KINDS, ProgramSpace, make_program_space
from solution.choosing.proposer import Proposer
from solution.choosing.search import MEASURED, Budget, search
from solution.choosing.space import name_choices
from solution.choosing.verdict import ROUNDS, Verdict
from solution.collecting.children import Child, ChildDiedError, Limits, choose_core
from solution.collecting.comparison import RULES
from solution.collecting.compiler import check_installed
from solution.collecting.given import give_arguments
from solution.collecting.identity import describe_machine
from solution.collecting.labelling import Workers
from solution.collecting.program import Program, Wanted, read_programs
from solution.serving.bundle import Bundle
from solution.system.errors import InputError
from solution.system.files import locked, make_folder
from solution.system.progress import warn
from solution.system.wording import join_names

PICTURE = "search.png"
VERIFYING = 0.3  # of the time is kept for timing the winner again, with at least
LEAST_VERIFYING = 20.0  # seconds
BATCH = 4
MOST = 1000  # measurements, where only time is given

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How one is chosen: by so many measurements, in so much time, or both, whichever ends first.

    Raises ValueError where neither is given.
    """

    measurements: int | None = MEASURED
    seconds: float | None = None
    kinds: tuple[str, ...] = ()
    seed: int = 0
    search: str = OURS  # a name in solution.choosing.methods.METHODS
    rounds: int = ROUNDS  # in which the winner is timed again
    limits: Limits = Limits()
    replace: bool = False
    wanted: Wanted | None = None  # the program of a file that has several
    arguments: Path | None = None  # a file of them

    def __post_init__(self) -> None:
        if not (self.measurements or self.seconds):
            raise ValueError("expected a number of measurements or of seconds, found neither")


@dataclass(frozen=True)
class Chosen:
    """What came out, in words and numbers."""

    name: str
    trials: list[Trial]
    reference: float  # nanoseconds of the default
    verdict: Verdict | None  # None: only the default could be timed to the end
    configuration: str
    changes: str
    note: str  # what led the search
    seconds: float  # that all of it took, earlier sessions included
    files: list[Path] = field(default_factory=list)


def choose_program(
    path: Path, bundle: Bundle | None, folder: Path, settings: Settings, tell: Tell
) -> Chosen:
    """Find a better configuration of the program in a file.

    Args:
        bundle: what leads; None for a search that no model leads.

    Raises:
        InputError: jax is not installed, the file holds no program or several, or it cannot be
            compiled as it is.
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
        chosen = make_program_space(program, settings.kinds)
        led = _open_search(bundle, chosen, settings)
        identity = _identify(program, bundle, settings)
        # What cannot be searched leaves no folder, and an earlier one as it is.
        make_folder(folder)
        with locked(folder, "Wait for it, or choose another --out."):
            if settings.replace:
                take_back(folder, PICTURE, RECORD)  # what else lies there is somebody's own
            journal = Journal.open(folder, identity, {"search": OURS})
            workers = Workers(compiling, timing)
            try:
                return _choose(chosen, led, workers, journal, folder, settings, tell)
            except ChildDiedError as error:
                raise InputError(
                    f"{path}: timing the program as it is failed: {error}. Expected one that runs "
                    "within the limits."
                ) from error


def read_program(path: Path, child: Child, wanted: Wanted | None) -> Program:
    """The program of a file that holds one, or that is wanted of it; InputError otherwise."""
    programs = list(read_programs(path, child, wanted))
    if len(programs) != 1:
        names = join_names([program.module.name for program in programs])
        raise InputError(
            f"{path}: holds {len(programs)} programs, expected one. Choose it with --module: "
            f"{names}."
        )
    return programs[0]


class Search(NamedTuple):
    """Who proposes, and what leads it, in words."""

    proposer: Proposer
    note: str


def _open_search(bundle: Bundle | None, chosen: ProgramSpace, settings: Settings) -> Search:
    if bundle is None or not is_led(settings.search):
        prior = LivePrior(None, Beliefs(), describe_unled(settings.search))
    else:
        prior = open_prior(bundle, chosen)
    known = prior.score, prior.beliefs, settings.seed
    return Search(make_proposer(settings.search, chosen.space, *known), prior.note)


def _choose(
    chosen: ProgramSpace,
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
    machine, default = _time_default(chosen, workers, journal, settings)
    trials, note = _search(led, default, machine, journal, settings, tell)
    ended = _recall_end(journal, trials, settings)
    if ended is None:
        tell("timing the best again, beside the default")
        found = machine.verify(trials, settings.rounds)
        ended = Ended(found, earlier + time.monotonic() - begin)
        journal.result = _describe_end(ended, trials, settings)
    else:
        tell("nothing is left to measure, and what was timed at the end stands")
    files = _hand_over(chosen, ended, folder)
    result = _describe(chosen, machine, trials, ended, f"{note} {machine.note}".rstrip())
    journal.result = {**(journal.result or {}), "configuration": result.configuration}
    journal.write()
    draw_search(trials, machine.reference, chosen.program.name, folder / PICTURE)
    result.files.extend([*files, folder / PICTURE])
    return result


def _time_default(
    chosen: ProgramSpace, workers: Workers, journal: Journal, settings: Settings
) -> tuple[Machine, Trial]:
    """What measures, and the default, which is timed once in all sessions."""
    own = chosen.space.default
    default = journal.trials.get(name_choices(own))
    machine = Machine(chosen, workers, settings.seed, default.time if default else None)
    if default is None:
        default = Trial(name_choices(own), own.tolist(), machine.reference)
        journal.trials[default.name] = default
        journal.write()
    return machine, default


def _search(
    led: Search,
    default: Trial,
    machine: Machine,
    journal: Journal,
    settings: Settings,
    tell: Tell,
) -> tuple[list[Trial], str]:
    """All that is measured now, but for the default, and what led, in words.

    What earlier sessions measured counts too, where fewer are asked for now, or others: one of them
    may be the best.
    """
    # The default is no guess: it is what everything is compared with, and is told first.
    led.proposer.tell(np.array([default.choices], np.int32), np.array([default.time]))
    budget = _budget(settings, machine.least_seconds(settings.rounds))
    asked = search(led.proposer, machine, budget, journal, _narrate(machine, tell))
    trials = [trial for trial in journal.trials.values() if trial.name != default.name]
    more = len(trials) - len(asked)
    counted = f" What was measured here before counts too: {more} more." if more else ""
    return trials, led.note + counted


@dataclass(frozen=True)
class Ended:
    """How a search ended."""

    found: tuple[Trial, Verdict] | None  # as Machine.verify says
    seconds: float  # that all of it took


def _describe_end(ended: Ended, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
    """As the journal keeps it, with what it holds for."""
    winner, verdict = ended.found or (None, None)
    return {
        "trials": [trial.name for trial in trials],
        "rounds": settings.rounds,
        "winner": winner and winner.name,
        "verdict": verdict and asdict(verdict),
        "seconds": ended.seconds,
    }


def _recall_end(journal: Journal, trials: Sequence[Trial], settings: Settings) -> Ended | None:
    """How the search ended before, if it had tried the same: chance is not asked once more.

    Of a search that ended before this was kept, None.
    """
    known = journal.result or {}
    wanted = {"trials": [trial.name for trial in trials], "rounds": settings.rounds}
    if "verdict" not in known or any(known.get(name) != value for name, value in wanted.items()):
        return None
    if known["verdict"] is None:
        return Ended(None, known["seconds"])
    return Ended((journal.trials[known["winner"]], Verdict(**known["verdict"])), known["seconds"])


def _hand_over(chosen: ProgramSpace, ended: Ended, folder: Path) -> Sequence[Path]:
    """Write what is faster than the default, and nothing else, into the folder; the files."""
    if ended.found is None or not ended.found[1].is_gain:
        take_back(folder)
        return ()
    winner, verdict = ended.found
    facts = {"gain": verdict.gain, "interval": [verdict.low, verdict.high]}
    return hand_over(chosen, np.array(winner.choices, np.int32), folder, facts)


def _describe(
    chosen: ProgramSpace, machine: Machine, trials: list[Trial], ended: Ended, note: str
) -> Chosen:
    verdict, configuration, changes = None, "as the compiler has it", "Nothing changes."
    if ended.found is not None:
        winner, verdict = ended.found
        choices = np.array(winner.choices, np.int32)
        before, after = machine.optimised(chosen.space.default), machine.optimised(choices)
        changes = describe_changes(before, after) if before and after else ""
        configuration = describe_choice(chosen, choices)
    return Chosen(
        chosen.program.name, trials, machine.reference, verdict, configuration, changes, note,
        ended.seconds,
    )  # fmt: skip


def _budget(settings: Settings, verifying: float) -> Budget:
    """What is left for the search where timing the winner again takes so many seconds at least."""
    most = settings.measurements or MOST
    if settings.seconds is None:
        return Budget(most, batch=BATCH)
    kept = max(LEAST_VERIFYING, VERIFYING * settings.seconds, verifying)
    return Budget(most, max(1.0, settings.seconds - kept), BATCH)


def _narrate(machine: Machine, tell: Tell) -> Callable[[Sequence[Trial]], None]:
    def say(trials: Sequence[Trial]) -> None:
        times = [trial.nanoseconds for trial in trials if trial.nanoseconds]
        best = f", best {min(times) / machine.reference:.3f} of the default" if times else ""
        failed = len(trials) - len(times)
        tell(f"measured {len(trials)}, {failed} failed{best}")

    return say


def _hash_bundle(bundle: Bundle) -> str:
    return hashlib.sha256(repr(sorted(bundle.record.files.items())).encode()).hexdigest()


def _identify(program: Program, bundle: Bundle | None, settings: Settings) -> dict[str, Any]:
    """What must be the same where a search goes on."""
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
