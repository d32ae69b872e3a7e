"""Train as a notebook: take over earlier models, train until the time is up, pack a bundle."""

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
    """The part of the work that one session does."""

    experiments: str = "*"  # patterns of the default experiments; the last match decides
    collections: str = "*"
    folds: str = ""  # such as "0,3"; empty: all
    hours: float = 11.5  # a kernel is killed after 12
    packed: str = NOTHING  # the models that become a bundle: NOTHING, FOLDS or REFIT

    def __post_init__(self) -> None:
        if self.packed not in (NOTHING, FOLDS, REFIT):
            raise InputError(f"{self.packed!r}: expected {FOLDS} or {REFIT} to be packed, or none.")


@dataclass(frozen=True)
class Trained:
    """The result of a session."""

    run: Run
    missing: str  # the models still to be trained, in words
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
    """Train a session's share of the default experiments; first take over earlier sessions' models.

    The data is prepared once for all experiments, so that runs of notebooks can be combined.

    Args:
        data: data to use instead of the session's; its store is used by this notebook alone.
        limit: for a smoke run: few graphs, one seed, short trainings.
        replace: start the run afresh, and the store of `data`, if given.
        executor: LOCAL or RAY.
        address: of the Ray cluster, such as auto; None: start one here, and stop it afterwards.

    Raises:
        InputError: the executor, the cluster or something that the share names does not exist.
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
            # Ray sets a handler of SIGTERM too, and the last one counts: so open Ray first.
            with trains_on.open(), session.time_limit(share.hours):
                run_experiments(experiments, plan, run, trains_on, choice)
                packing.train(trains_on)
            missing = [*list_missing(experiments, plan, run, choice), *packing.list_missing()]
            bundle = packing.pack(session.output)
        return Trained(run, describe_missing(missing), bundle)


def _find_own_store(session: Session, usual: Path, *, replace: bool) -> Path:
    """Return the folder for the store of this notebook's data; with `replace`, remove an old
    store."""
    place = usual.with_name(f"{usual.name}-{session.notebook}")
    if replace and is_store(place):
        remove(place)
    return place
