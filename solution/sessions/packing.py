"""Pack the models of a training notebook into a bundle beside its run once all of them exist."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import Recipe, find_recipe
from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.serving.packing import pack
from solution.sessions.earlier_runs import describe_missing
from solution.sessions.record import BUNDLE
from solution.system.terminal import say
from solution.training.distilling import list_refits
from solution.training.executors.base import Executor
from solution.training.executors.local import HERE
from solution.training.jobs import Choice, Job, find_defect, list_missing
from solution.training.plan import Plan
from solution.training.refitting import train_refits

NOTHING, FOLDS, REFIT = "", "folds", "refit"


@dataclass(frozen=True)
class Packing:
    """What a session packs of a run: the models of all folds, or models trained on all graphs.

    If sessions share the folds, only a session that has the models of all folds packs.
    """

    kind: str  # NOTHING, FOLDS or REFIT
    experiments: Sequence[Experiment]
    plan: Plan
    run: Run
    collections: tuple[str, ...]  # empty: all

    def train(self, executor: Executor = HERE) -> None:
        """Train the models that learn from all graphs, if these are packed and all fold models
        exist."""
        refits = self._list_refits()
        if refits and not self._find_lacking():
            train_refits(refits, self.plan, self.run, executor)

    def list_missing(self) -> list[Job]:
        """Return the models on all graphs that could be trained now but do not exist yet."""
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
            path.unlink(missing_ok=True)  # left by an earlier session on this computer
            say(f"No bundle: {reason or 'none is asked for'}.")
            return None
        return pack(self.run, recipe, path, refitted=self.kind == REFIT)

    def _find_lacking(self) -> list[Job]:
        """Return the missing models of all folds, including those that other sessions train."""
        return list_missing(self.experiments, self.plan, self.run, Choice(self.collections))

    def _list_refits(self) -> list[Job]:
        recipe = self._choose_recipe()
        names = {*recipe.names(), recipe.fallback} if self.kind == REFIT else set()
        jobs = [
            job for e in self.experiments if e.name in names for job in list_refits(e, self.plan)
        ]
        return [job for job in jobs if Choice(self.collections).includes(job)]

    def _choose_recipe(self) -> Recipe:
        """Return the default recipe, without its fallback if this run does not train that
        experiment."""
        recipe = find_recipe(DEFAULT_RECIPE)
        has_fallback = recipe.fallback in self.run.experiments()
        return recipe if has_fallback else recipe.model_copy(update={"fallback": None})
