"""Search the settings of an experiment by its out-of-fold scores.

A trial scores one choice of settings; a study holds all trials of a search. The study is a SQLite
file, so a stopped search can continue. A trial is pruned (stopped early) if, after some folds, its
score is below the median of earlier trials. Test labels are never used.

Source: Akiba et al., "Optuna", KDD 2019; Bergstra and Bengio, "Random search for hyper-parameter
optimization", JMLR 2012. A published LightGBM study used 25 trials in 4 folds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.trial import TrialState
from rich.table import Table

from solution.experiments.base import Experiment, read_sources
from solution.models.base import Ranker
from solution.runs.fingerprint import fingerprint_code
from solution.system.errors import InputError
from solution.system.files import locked, make_folder, remove_leftovers, write_bytes
from solution.system.progress import bars
from solution.system.report import Report
from solution.system.terminal import make_table
from solution.training.executors.base import Executor, Needs, Task
from solution.training.executors.local import LocalExecutor
from solution.training.failures import is_own, name_failure, rehearse
from solution.training.fit import DivergedError
from solution.training.fold_scores import fit_without, held_out, score_graphs
from solution.training.plan import Plan
from solution.training.sites import ExperimentSpec, Site, choose_needs, choose_site, estimate_memory
from solution.training.watch import ProgressBars, Watch
from solution.tuning.experiment_text import write_experiment
from solution.tuning.space import find_searched, plain_value, with_values
from solution.tuning.study_file import STUDY, keep, open_storage, working_copy

DIVERGED = "diverged"  # marks a trial with NaN or infinite scores
WARM_UP_TRIALS = 5  # complete trials before any trial is pruned


@dataclass(frozen=True)
class Scored:
    """The scores of a trial. Each step of a trial scores one collection on one fold."""

    # after each step, the mean over the collections scored so far of their mean scores
    values: tuple[float, ...]
    is_given_up: bool  # True if the trial was pruned or has diverged
    has_diverged: bool = False


@dataclass(frozen=True)
class Trials:
    """A function that scores settings on the folds, in any worker process. `site` tells workers how
    to find the graphs. `experiment` is the searched experiment, or a description to load it by."""

    site: Site
    experiment: ExperimentSpec | Experiment
    collections: tuple[str, ...]
    seed: int

    def __call__(self, values: dict[str, Any], limits: Sequence[float], report: Report) -> Scored:
        """Score the experiment's ranker with the settings `values` by cross-validation. A step
        scores one collection on one fold; the model is trained on the other folds. The trial is
        pruned at a step if the best mean score of its steps so far is below `limits[step]`. Raises
        InputError if a user's model fails."""
        experiment = self._find()
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        with name_failure(experiment, f"tried with {given}"):
            return self._score(experiment, values, limits, report)

    def _score(
        self,
        experiment: Experiment,
        values: dict[str, Any],
        limits: Sequence[float],
        report: Report,
    ) -> Scored:
        plan, settings = self.site.plan, with_values(experiment.ranker, values)
        steps = self._list_steps()
        scores: dict[str, list[np.ndarray]] = {}
        models: dict[tuple[tuple[str, ...], int], Ranker] = {}
        found: list[float] = []
        for number, (collection, fold) in enumerate(steps):
            key = experiment.learns_from(collection), fold
            # keep only the last model, which scores all collections of its group, to bound memory
            if key not in models:
                models = {key: fit_without(settings, plan, *key, self.seed)}
            graphs = held_out(plan, collection, fold, settings)
            try:
                of_fold = score_graphs(models[key], graphs)[:, 0]
            except DivergedError:
                return Scored(tuple(found), is_given_up=True, has_diverged=True)
            scores.setdefault(collection, []).append(of_fold)
            found.append(_mean_of_collections(list(scores.values())))
            report(number + 1, len(steps), f"{found[-1]:.4f}")
            is_last = number + 1 == len(steps)
            if not is_last and number < len(limits) and max(found) < limits[number]:
                return Scored(tuple(found), is_given_up=True)
        return Scored(tuple(found), is_given_up=False)

    def _list_steps(self) -> list[tuple[str, int]]:
        """Return the steps (collection, fold), sorted by fold: each collection is scored early."""
        folds = self.site.plan.folds
        steps = [(name, fold) for name in self.collections for fold in folds(name)]
        return sorted(steps, key=lambda step: step[1])

    def _find(self) -> Experiment:
        given = self.experiment
        found = self.site.find(given) if isinstance(given, ExperimentSpec) else given
        return replace(found, collections=self.collections)


def _mean_of_collections(found: Sequence[Sequence[np.ndarray]]) -> float:
    return float(np.mean([np.concatenate(scores).mean() for scores in found]))


def find_limits(study: optuna.Study) -> tuple[float, ...]:
    """Return for each step the score below which a trial is pruned: the median of the complete
    trials at this step. Empty if fewer than WARM_UP_TRIALS trials are complete. Source: the median
    stopping rule of Golovin et al., "Google Vizier", KDD 2017."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < WARM_UP_TRIALS:
        return ()
    found = [trial.intermediate_values for trial in complete]
    steps = range(min(len(values) for values in found))
    return tuple(float(np.median([values[step] for values in found])) for step in steps)


def tell(study: optuna.Study, trial: optuna.Trial, scored: Scored) -> None:
    """Report the scores of a trial, and whether it was pruned, to the study."""
    for step, value in enumerate(scored.values):
        trial.report(value, step)
    if scored.has_diverged:
        trial.set_user_attr(DIVERGED, value=True)
    if scored.is_given_up:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, scored.values[-1])


Sampler = Literal["tpe", "random"]
SHOWN = 10
DONE = (TrialState.COMPLETE, TrialState.PRUNED)
AS_IT_IS = "as it is"  # marks the trial with the experiment's unchanged settings


@dataclass(frozen=True)
class Search:
    """A search of an experiment's settings, whose results are kept in `folder`."""

    experiment: Experiment
    plan: Plan
    folder: Path
    sampler: Sampler = "tpe"
    seed: int = 0
    prune: bool = True
    executor: Executor = LocalExecutor(1)
    # number of trials sampled per batch; None: the executor's number of parallel slots
    at_once: int | None = None

    def run(self, trials: int) -> optuna.Study:
        """Search until `trials` trials are done, and return the study.

        Trials of earlier runs count. The first trial has the experiment's unchanged settings.

        Raises InputError if the folder's search is damaged or has other code, data or folds; if no
        collection can be divided into folds; if a user's model fails; or if every trial diverged.
        """
        if not any(self.plan.folds(name) for name in self.experiment.collections):
            raise InputError(
                f"{self.experiment.name}: none of {', '.join(self.experiment.collections)} has "
                "labelled graphs of several architectures here, so nothing can be held out to "
                "score settings by. Search on other data."
            )
        rehearse(self.experiment, self.plan)
        make_folder(self.folder)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with locked(self.folder, "Wait for it, or choose another folder with --out."):
            remove_leftovers(self.folder)
            with working_copy(self.folder) as copy:
                study = self._open(copy)
                self._try(study, trials, copy)
            stored = open_storage(self.folder / STUDY)
            done = optuna.load_study(study_name=study.study_name, storage=stored)
        if not done.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            raise InputError(
                f"{self.experiment.name}: the scores of all {_count_done(done)} trials are NaN or "
                "infinite, so there is no best. Lower its learning rate."
            )
        return done

    def _try(self, study: optuna.Study, trials: int, copy: Path) -> None:
        """Score trials in batches until `trials` are done; store the study after each batch."""
        searched = find_searched(self.experiment.ranker)
        if find_as_it_is(study, (*DONE, TrialState.WAITING)) is None:
            values = {item.name: item.value for item in searched}
            study.enqueue_trial(values, user_attrs={AS_IT_IS: True})
        with self._executor.open(), bars() as progress:
            done = _count_done(study)
            watch = ProgressBars(progress, max(trials, done), "Trials")
            watch.advance(done)
            work = self._work()
            while (left := trials - _count_done(study)) > 0:
                watch.note(_describe_best(study))
                try:
                    # ask for the slots again in each round, because a cluster may grow
                    at_once = self.at_once or self._executor.slots
                    self._try_some(study, min(left, at_once), work, watch)
                finally:
                    keep(copy, self.folder)
            watch.note(_describe_best(study))

    def _try_some(self, study: optuna.Study, count: int, work: Trials, watch: Watch) -> None:
        """Sample `count` trials, score them in parallel, and report them in sampling order, so that
        results do not depend on which worker finishes first."""
        searched = find_searched(self.experiment.ranker)
        needs = self._find_needs()
        asked, tasks = [], []
        for _ in range(count):
            trial = study.ask({item.name: item.distribution for item in searched})
            drawn = trial.params
            values = {item.name: plain_value(item, drawn[item.name]) for item in searched}
            may_end = self.prune and AS_IT_IS not in trial.user_attrs
            limits = find_limits(study) if may_end else ()
            asked.append(trial)
            tasks.append(Task(f"Trial {trial.number}", (values, limits), needs))
        results: dict[int, Scored] = {}
        try:
            self._executor.run(work, tasks, watch, results.__setitem__)
        finally:  # report the finished trials even if another trial failed
            for number in sorted(results):
                tell(study, asked[number], results[number])

    @property
    def _executor(self) -> Executor:
        """The executor of trials; trials of an experiment made in memory run in this process."""
        return self.executor if self.experiment.origin else LocalExecutor(1)

    def _find_needs(self) -> Needs:
        if not self._executor.is_away:
            return Needs()
        groups = {self.experiment.learns_from(name) for name in self.experiment.collections}
        memory = max(estimate_memory(group, self.plan) for group in groups)
        return choose_needs(self.experiment.ranker, memory, self._executor)

    def _work(self) -> Trials:
        """Return the function that the executor's workers call for each trial."""
        experiment = self.experiment
        site = choose_site(self._executor, self.plan, [experiment])
        found = ExperimentSpec.of(experiment) if experiment.origin else experiment
        return Trials(site, found, experiment.collections, self.seed)

    def best_experiment(self, study: optuna.Study) -> Path:
        """Write the best settings as an experiment file, and return its path."""
        name = f"{self.experiment.name}_tuned"
        searched = find_searched(self.experiment.ranker)
        values = {item.name: plain_value(item, study.best_params[item.name]) for item in searched}
        settings = with_values(self.experiment.ranker, values)
        note = (
            f"{self.experiment.name} with the best of {_count_done(study)} trials: "
            f"{study.best_value:.4f}."
        )
        path = self.folder / f"{name}.py"
        write_bytes(write_experiment(name, self.experiment, settings, note).encode(), path)
        self._copy_neighbours()
        return path

    def _copy_neighbours(self) -> None:
        """Copy the modules that a user's experiment file imports from its folder into `folder`."""
        if not is_own(self.experiment):
            return
        origin = Path(self.experiment.origin)
        for name, content in read_sources(origin).items():
            if name != origin.name:
                write_bytes(content, self.folder / name)

    def _open(self, copy: Path) -> optuna.Study:
        """Return the study in the file `copy`, which is created if it does not exist. Raises
        InputError if the study is of another search (see `_check_same`)."""
        study = optuna.create_study(
            storage=open_storage(copy),
            study_name=self.experiment.name,
            direction="maximize",
            load_if_exists=True,
            # Optuna must not prune, because Trials decides whether to stop a trial early
            pruner=optuna.pruners.NopPruner(),
        )
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        # The seed differs with the number of trials, so that a continued search draws other trials.
        study.sampler = samplers[self.sampler](seed=self.seed + len(study.get_trials(False)))
        self._check_same(study)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            # a trial that still counts as running has failed: its process was killed
            study.tell(trial.number, state=TrialState.FAIL)
        return study

    def _check_same(self, study: optuna.Study) -> None:
        """Record settings, code, data and folds in the study; InputError if its record differs."""
        wanted = {
            "ranker": repr(self.experiment.ranker),
            "source": self.experiment.source,
            "code": fingerprint_code(),
            "collections": list(self.experiment.collections),
            "train_jointly": [list(group) for group in self.experiment.train_jointly],
            "folds": {name: self.plan.folds(name) for name in self.experiment.collections},
            "data": self.plan.settings()["data"],
            "seed": self.seed,
        }
        known = study.user_attrs or wanted
        # defaults for what the study's record lacks: no joint training, otherwise the value now
        before = {**wanted, "train_jointly": []}
        for name, value in wanted.items():
            found = known.get(name, before[name])
            if found != value:
                other = "other" if name in ("code", "collections", "folds") else "another"
                raise InputError(
                    f"{self.folder}: holds a search with {other} {name} ({found}, now {value}). "
                    "Choose another folder with --out."
                )
            study.set_user_attr(name, value)


def find_as_it_is(
    study: optuna.Study, states: Sequence[TrialState] = (TrialState.COMPLETE,)
) -> optuna.trial.FrozenTrial | None:
    """Return the trial with unchanged settings in one of the `states`; None if there is none."""
    trials = study.get_trials(deepcopy=False, states=tuple(states))
    return next((trial for trial in trials if AS_IT_IS in trial.user_attrs), None)


def _count_done(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=DONE))


def _describe_best(study: optuna.Study) -> str:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return f"best {study.best_value:.4f}" if complete else ""


def show_study(study: optuna.Study) -> Table:
    """Return a table of the best trials and of the trial with unchanged settings."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    pruned = study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
    diverged = sum(DIVERGED in trial.user_attrs for trial in pruned)
    ranked = sorted(complete, key=lambda trial: -_value(trial))
    names = list(ranked[0].params)
    unchanged = find_as_it_is(study)
    table = make_table(
        f"{study.study_name}: {len(complete)} trials, {len(pruned)} more given up early"
        + (f" ({diverged} with scores that are NaN or infinite)" if diverged else ""),
        (f"Trial {unchanged.number} is the experiment as it is. " if unchanged else "")
        + "The best of many trials flatters itself.",
    )
    shown = ranked[:SHOWN]
    shown += [trial for trial in ranked[SHOWN:] if unchanged and trial.number == unchanged.number]
    # on a narrow terminal, the columns of the worst trials are left out first
    table.expendable = [f"trial {trial.number}" for trial in shown[:0:-1]]
    table.add_column("Setting", no_wrap=True)
    for trial in shown:
        table.add_column(f"trial {trial.number}", justify="right", no_wrap=True)
    table.add_row("score", *(f"{_value(trial):.4f}" for trial in shown), style="bold")
    for name in names:
        table.add_row(name, *(_show(trial.params[name]) for trial in shown))
    return table


def _value(trial: optuna.trial.FrozenTrial) -> float:
    return float(trial.value) if trial.value is not None else float("nan")


def _show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
