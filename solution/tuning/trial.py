"""One trial of a search: settings, fitted on every fold and scored, given up where they are bad."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from solution.experiments.base import Experiment
from solution.models.base import Ranker
from solution.system.report import Report
from solution.training.failures import name_failure
from solution.training.fold_scores import DivergedError, fit_without, held_out, score_graphs
from solution.training.sites import Address, Site
from solution.tuning.space import with_values

DIVERGED = "diverged"  # marks a trial of which scores are NaN or infinite
WARM_UP_TRIALS = 5  # before any trial is given up


@dataclass(frozen=True)
class Scored:
    """What a trial found."""

    values: tuple[float, ...]  # the mean of the collections after each step
    is_given_up: bool
    has_diverged: bool = False


@dataclass(frozen=True)
class Trials:
    """The work of a search: scores settings on the folds, in any process.

    Args:
        experiment: whose settings are searched, or where it is found.
        collections: those that it is scored on.
        seed: of the models.
    """

    site: Site
    experiment: Address | Experiment
    collections: tuple[str, ...]
    seed: int

    def __call__(self, values: dict[str, Any], limits: Sequence[float], report: Report) -> Scored:
        """Fit on all folds but one, for each; the scores.

        Args:
            values: the settings that are not the experiment's own.
            limits: a trial whose best mean until then is below the limit of a step is given up
                there; there may be fewer than steps.

        Raises InputError where a model of one's own fails.
        """
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
            if key not in models:  # the last one, if it ranks several collections
                models = {key: fit_without(settings, plan, *key, self.seed)}
            graphs = held_out(plan, collection, fold, settings)
            try:
                own = score_graphs(models[key], graphs)[:, 0]
            except DivergedError:
                return Scored(tuple(found), is_given_up=True, has_diverged=True)
            scores.setdefault(collection, []).append(own)
            found.append(_mean_of_collections(list(scores.values())))
            report(number + 1, len(steps), f"{found[-1]:.4f}")
            is_last = number + 1 == len(steps)
            if not is_last and number < len(limits) and max(found) < limits[number]:
                return Scored(tuple(found), is_given_up=True)
        return Scored(tuple(found), is_given_up=False)

    def _list_steps(self) -> list[tuple[str, int]]:
        """Collections and folds; every collection's first fold comes first."""
        folds = self.site.plan.folds
        steps = [(name, fold) for name in self.collections for fold in folds(name)]
        return sorted(steps, key=lambda step: step[1])

    def _find(self) -> Experiment:
        given = self.experiment
        found = self.site.find(given) if isinstance(given, Address) else given
        return replace(found, collections=self.collections)


def _mean_of_collections(found: Sequence[Sequence[np.ndarray]]) -> float:
    return float(np.mean([np.concatenate(scores).mean() for scores in found]))


def find_limits(study: optuna.Study) -> tuple[float, ...]:
    """The median of the complete trials after each step, which another one has to reach.

    Empty while they are few. Source: Golovin et al., "Google Vizier", KDD 2017, the median stopping
    rule, as Optuna's pruner has it.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < WARM_UP_TRIALS:
        return ()
    found = [trial.intermediate_values for trial in complete]
    steps = range(min(len(values) for values in found))
    return tuple(float(np.median([values[step] for values in found])) for step in steps)


def tell(study: optuna.Study, trial: optuna.Trial, scored: Scored) -> None:
    """Keep what a trial found."""
    for step, value in enumerate(scored.values):
        trial.report(value, step)
    if scored.has_diverged:
        trial.set_user_attr(DIVERGED, value=True)
    if scored.is_given_up:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, scored.values[-1])
