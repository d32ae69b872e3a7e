"""How a run is asked for: what is made of its data, and what it gives up to end in time."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from solution.system.errors import InputError
from solution.system.terminal import output, say
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from solution.experiments.base import Experiment
    from solution.runs.folder import Run
    from solution.store.store import Store
    from solution.training.budget import Budget
    from solution.training.forecast import Forecast
    from solution.training.plan import Plan

FOLDS, QUICK_FOLDS = 5, 2


@dataclass(frozen=True)
class Asked:
    """How a run is made, where nothing is given up."""

    scheme: Scheme
    given_folds: int | None
    limit: bool
    replace: bool
    collections: Sequence[str]
    executor: str
    workers: int | None

    @property
    def folds(self) -> int:
        return self.given_folds or (QUICK_FOLDS if self.limit else FOLDS)

    @property
    def slots(self) -> int | None:
        """How many models are trained at once; None: nobody knows, on a cluster."""
        from solution.training.executors.local import LocalExecutor

        if self.executor != "local":
            return self.workers
        return LocalExecutor(self.workers).slots

    def check_folder(
        self, found: "Sequence[Experiment]", folder: Path, hours: float | None
    ) -> None:
        """InputError for the folder of another run, before the data is prepared."""
        from solution.runs.folder import EXPERIMENTS
        from solution.runs.record import check_folder
        from solution.training.budget import find_whole, recall_budget

        began = None if self.replace else recall_budget(folder, found, self.folds)
        known: dict[str, object] = {"scheme": self.scheme}
        if began or hours is None:  # otherwise what is given up is chosen later
            budget = began or find_whole(found, self.folds)
            described = {item.name: item.describe() for item in budget.apply(found)}
            known |= {"folds": budget.folds, EXPERIMENTS: described}
        check_folder(folder, known, replace=self.replace)

    def prepare(
        self, found: "Sequence[Experiment]", source: Path, place: Path, *, named: bool
    ) -> "AbstractContextManager[Store]":
        """The store of the data; `place` is as open_store takes it."""
        from solution.training.opening import open_store

        return open_store(
            source, place, found, collections=self.collections, limit=self.limit, named=named,
            workers=self.workers,
        )  # fmt: skip

    def plan(self, store: "Store") -> "Plan":
        from solution.training.opening import check_labels
        from solution.training.plan import make_plan

        plan = make_plan(
            store, self.scheme, self.folds, limit=self.limit, collections=self.collections
        )
        check_labels(plan)
        return plan

    def open(
        self, found: "Sequence[Experiment]", store: "Store", folder: Path, folds: int
    ) -> "AbstractContextManager[tuple[Plan, Run]]":
        """The run, which goes on; of graphs that are there twice it is told first.

        Raises InputError where none of the experiments ranks anything here.
        """
        from solution.analysis.equal_graphs import find_equal_graphs
        from solution.system.progress import warn
        from solution.training.opening import check_experiments, open_experiments

        check_experiments(found, self.plan(store))
        for words in find_equal_graphs(store.graphs):
            warn(words)
        return open_experiments(
            found, store, folder, scheme=self.scheme, limit=self.limit, replace=self.replace,
            folds=folds, collections=self.collections,
        )  # fmt: skip


def show_estimate(
    found: "list[Experiment]", asked: Asked, store: "Store", hours: float | None
) -> None:
    """What all of it takes, and what of it fits into the hours."""
    from solution.training import budget as budgets
    from solution.training.executors.local import count_slots
    from solution.training.forecast import forecast, foretell_merging, show_forecast

    startup, plan = time.time() - psutil.Process().create_time(), asked.plan(store)
    slots = asked.slots or count_slots()
    lines = forecast(found, plan, slots=slots)
    output.print(show_forecast(lines, plan, slots, startup))
    if hours is not None:
        beside = foretell_merging(lines) + startup
        chosen = budgets.choose_budget(lines, found, asked.folds, hours, slots, beside)
        given_up = chosen.describe(budgets.find_whole(found, asked.folds))
        say(f"In --hours {hours:g}: {given_up or 'all of it'}.")


def settle_budget(
    found: "list[Experiment]",
    asked: Asked,
    store: "Store",
    folder: Path,
    hours: float | None,
) -> "tuple[Budget, list[Forecast] | None]":
    """What is trained: what the run began with, or what fits into the hours, or everything.

    And what its models will take, where that was asked for the hours.
    """
    from solution.training import budget as budgets
    from solution.training.forecast import forecast, foretell_merging

    begin, whole = time.monotonic(), budgets.find_whole(found, asked.folds)
    began = None if asked.replace else budgets.recall_budget(folder, found, asked.folds)
    chosen, known = began or whole, None
    if hours is not None and began is None:
        if asked.slots is None:
            raise InputError("--hours: how many models a cluster trains at once? Give --workers.")
        say("Watching the first steps of each kind of model, to say what fits ...")
        lines = forecast(found, asked.plan(store), slots=asked.slots)
        beside = foretell_merging(lines) + time.monotonic() - begin
        chosen = budgets.choose_budget(lines, found, asked.folds, hours, asked.slots, beside)
        known = chosen.scale(lines, found, asked.folds)
        if chosen == whole:
            say(f"All of it fits into --hours {hours:g}.")
    given_up = chosen.describe(whole)
    if began and (given_up or hours is not None):
        unchanged = "" if hours is None else " --hours changes nothing of it."
        say(f"As this run began: {given_up or 'with all of it'}.{unchanged}")
    elif given_up:
        say(f"To end in {hours:g} hours: {given_up}.")
    return chosen, known
