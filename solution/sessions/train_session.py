"""Train in a notebook's session: copy the models of earlier sessions, train, pack a bundle.

A bundle is one zip of models. A refit is a model that is trained on all graphs, without a held-out
fold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensembles.recipe import Recipe, find_recipe
from solution.data.folders import find_files
from solution.experiments.base import Experiment, find_experiment
from solution.runs.folder import Run
from solution.runs.record import open_run
from solution.serving.packing import pack
from solution.sessions.earlier_runs import adopt, choose, describe_missing
from solution.sessions.record import BUNDLE
from solution.sessions.session import Session
from solution.store.store import is_store
from solution.system.errors import InputError
from solution.system.files import remove
from solution.system.names import match
from solution.system.terminal import say
from solution.training.distilling import list_refits
from solution.training.folds import Scheme
from solution.training.jobs import Choice, Job, find_backlog, find_defect, list_missing
from solution.training.opening import (
    choose_place,
    describe_run,
    find_default_recipe,
    find_hops,
    open_store,
    save_split,
    warn_about_gaps,
)
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan
from solution.training.refitting import train_refits

NOTHING, FOLDS, REFIT = "", "folds", "refit"


@dataclass(frozen=True)
class Packing:
    """The models that the session packs into a bundle: the models of all folds, or refits (models
    that learn from all graphs). A session packs only if it has the models of all folds."""

    kind: str  # NOTHING, FOLDS or REFIT
    recipe: Recipe  # merges the scores of the bundle's models
    experiments: Sequence[Experiment]
    plan: Plan
    run: Run
    collections: tuple[str, ...]  # collections whose models are packed; empty: all

    def train(self) -> None:
        """Train the refits, if they are to be packed and the models of all folds exist."""
        refits = self._list_refits()
        if refits and not self._find_lacking():
            train_refits(refits, self.plan, self.run)

    def list_missing(self) -> list[Job]:
        """Return the refits that could be trained now but do not exist yet."""
        if self._find_lacking():
            return []
        return [job for job in self._list_refits() if find_defect(job, self.run) is not None]

    def pack(self, folder: Path) -> Path | None:
        """Write the bundle and return its path; if it cannot be packed, say why and return None."""
        path, recipe = folder / BUNDLE, self._choose_recipe()
        lacking = [*self._find_lacking(), *self.list_missing()]
        reason = describe_missing(lacking)
        if not set(recipe.names()) & set(self.run.experiments()):
            reason = f"none of {', '.join(recipe.names())} was trained here"
        if self.kind == NOTHING or reason:
            path.unlink(missing_ok=True)  # remove a bundle that an earlier session left
            say(f"No bundle: {reason or 'none was requested'}.")
            return None
        return pack(self.run, recipe, path, refitted=self.kind == REFIT)

    def _find_lacking(self) -> list[Job]:
        """Return the missing models of all folds, including models that other sessions train."""
        return list_missing(self.experiments, self.plan, self.run, Choice(self.collections))

    def _list_refits(self) -> list[Job]:
        recipe = self._choose_recipe()
        names = {*recipe.names(), recipe.fallback} if self.kind == REFIT else set()
        jobs = [
            job for e in self.experiments if e.name in names for job in list_refits(e, self.plan)
        ]
        return [job for job in jobs if Choice(self.collections).includes(job)]

    def _choose_recipe(self) -> Recipe:
        """Return the recipe, without its fallback if this run does not train it."""
        has_fallback = self.recipe.fallback in self.run.experiments()
        return self.recipe if has_fallback else self.recipe.model_copy(update={"fallback": None})


@dataclass(frozen=True)
class Share:
    """The part of the work that one session does."""

    experiments: str = "*"  # patterns of the recipe's experiments; the last match decides
    collections: str = "*"
    folds: str = ""  # numbers of the folds to train, such as "0,3"; empty: all
    hours: float = 11.5  # time limit of the session; Kaggle kills a kernel after 12 hours
    packed: str = NOTHING  # the models that become a bundle: NOTHING, FOLDS or REFIT
    recipe: str = ""  # name or path of the recipe to train; empty: the default of `fastslow run`

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
) -> Trained:
    """Train a session's share of a recipe's experiments, after copying earlier sessions' models.

    The data is prepared once for all experiments, so that runs of notebooks can be combined.

    Args:
        data: data to use instead of the session's; its store is used by this notebook alone.
        limit: for a quick look: few graphs, one seed, short trainings.
        replace: start the run afresh, and the store of `data`, if given.
    """
    source = data or session.find_data()
    recipe = find_recipe(share.recipe) if share.recipe else find_default_recipe(source, limit=limit)
    names = recipe.experiments()
    everything = [find_experiment(name) for name in names]
    experiments = [find_experiment(name) for name in match(names, share.experiments)]
    if limit:
        experiments = [experiment.quick() for experiment in experiments]
    folder = _choose_store(session, data, everything, limit=limit, replace=replace)
    with open_store(source, folder, everything, limit=limit) as store:
        plan = make_plan(store, scheme, num_folds, limit=limit)
        warn_about_gaps(plan)
        choice = choose(plan, share.collections, share.folds)
        settings = describe_run(experiments, plan, scheme, num_folds)
        with open_run(session.run, settings, replace=replace, quick=limit) as run:
            save_split(plan, run)
            say(f"Models from earlier sessions: {adopt(run, session.find_runs())}")
            packing = Packing(share.packed, recipe, experiments, plan, run, choice.collections)
            with session.time_limit(share.hours):
                run_experiments(find_backlog(experiments, plan, run, choice), plan, run)
                packing.train()
            missing = [*list_missing(experiments, plan, run, choice), *packing.list_missing()]
            bundle = packing.pack(session.output)
        return Trained(run, describe_missing(missing), bundle)


def _choose_store(
    session: Session,
    data: Path | None,
    everything: Sequence[Experiment],
    *,
    limit: bool,
    replace: bool,
) -> Path:
    """Return the folder of the store to prepare. If `data` is given, this folder is the notebook's
    alone; with `replace`, an existing store in it is deleted."""
    folder = session.store(limit=limit)
    if data is None:
        return folder
    folder = folder.with_name(f"{folder.name}-{session.notebook}")
    if replace and not is_store(data):
        there = [file.collection.name for file in find_files(data)]
        prepared = choose_place(folder, find_hops(there, everything)[0])
        if is_store(prepared):
            remove(prepared)
    return folder
