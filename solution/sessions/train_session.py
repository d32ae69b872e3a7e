"""What a training notebook does: take over what there is, train until the time is up, pack it."""

from dataclasses import dataclass
from pathlib import Path

from solution.experiments import DEFAULTS
from solution.experiments.base import find_experiment
from solution.runs.folder import Run
from solution.runs.record import open_run
from solution.sessions.earlier_runs import adopt, choose, describe_missing
from solution.sessions.packing import FOLDS, NOTHING, REFIT, Packing
from solution.sessions.session import Session
from solution.store.store import is_store
from solution.system.errors import InputError
from solution.system.files import remove
from solution.system.names import match
from solution.system.terminal import say
from solution.training.executors.choose import LOCAL, choose_executor
from solution.training.folds import Scheme
from solution.training.jobs import list_missing
from solution.training.opening import describe_run, open_store, save_split, warn_about_gaps
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan


@dataclass(frozen=True)
class Share:
    """What of the work one session does."""

    experiments: str = "*"  # patterns of the default experiments; the last that fits decides
    collections: str = "*"
    folds: str = ""  # such as "0,3"; empty: all
    hours: float = 11.5  # a kernel is killed after 12
    packed: str = NOTHING  # FOLDS, REFIT: which models become a bundle

    def __post_init__(self) -> None:
        if self.packed not in (NOTHING, FOLDS, REFIT):
            raise InputError(f"{self.packed!r}: expected {FOLDS} or {REFIT} to be packed, or none.")


@dataclass(frozen=True)
class Trained:
    """What a session leaves."""

    run: Run
    missing: str  # what is left to train, in words
    bundle: Path | None


def train_session(
    session: Session,
    share: Share,
    *,
    data: Path | None = None,
    scheme: Scheme = "architecture",
    num_folds: int = 5,
    limit: bool = False,
    replace: bool = False,
    executor: str = LOCAL,
    address: str | None = None,
) -> Trained:
    """Train a session's share of the default experiments, after those of earlier sessions.

    The data is prepared once for all experiments, so that the runs of all notebooks fit together.

    Args:
        data: other data than what the session finds; its store is of this notebook alone.
        limit: only to see it work: few graphs, one seed, short trainings.
        replace: start the run afresh, and with `data` the store.
        executor: LOCAL or RAY.
        address: of the cluster, such as auto; None: one is started on this machine, and ended.

    Raises:
        InputError: there is no such executor, no such cluster, or not what the share is of.
    """
    trains_on = choose_executor(executor, address)
    everything = [find_experiment(name) for name in DEFAULTS]
    experiments = [find_experiment(name) for name in match(DEFAULTS, share.experiments)]
    if limit:
        experiments = [experiment.quick() for experiment in experiments]
    place = session.store(limit=limit)
    if data is not None:
        place = _find_own_store(session, place, replace=replace)
    with open_store(data or session.find_data(), place, everything, limit=limit) as store:
        plan = make_plan(store, scheme, num_folds, limit=limit)
        warn_about_gaps(plan)
        choice = choose(plan, share.collections, share.folds)
        settings = describe_run(experiments, plan, scheme, num_folds)
        with open_run(session.run, settings, replace=replace, quick=limit) as run:
            save_split(plan, run)
            say(f"Models from earlier sessions: {adopt(run, session.find_runs())}")
            packing = Packing(share.packed, experiments, plan, run, choice.collections)
            # Opened outside the limit: Ray has a handler of SIGTERM as well, the last one counts.
            with trains_on.open(), session.time_limit(share.hours):
                run_experiments(experiments, plan, run, trains_on, choice)
                packing.train(trains_on)
            missing = [*list_missing(experiments, plan, run, choice), *packing.list_missing()]
            bundle = packing.pack(session.output)
        return Trained(run, describe_missing(missing), bundle)


def _find_own_store(session: Session, usual: Path, *, replace: bool) -> Path:
    """Where the data of this notebook alone is prepared; emptied where it shall begin afresh."""
    place = usual.with_name(f"{usual.name}-{session.notebook}")
    if replace and is_store(place):
        remove(place)
    return place
