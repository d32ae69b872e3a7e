"""Commands that do all of it, from files to a submission: run, demo."""

import sys
import time
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from solution.commands.options import (
    Address,
    DataOrAddress,
    Devices,
    ExecutorOption,
    FoldScheme,
    GpuShare,
    RecipeOption,
    RunFolder,
    Workers,
    make_executor,
    name_of,
)
from solution.commands.results import finish
from solution.data.folders import SAMPLE, check_exists
from solution.experiments import DEFAULTS
from solution.runs.folder import Run, find_runs, find_stores
from solution.runs.origin import remember_origin
from solution.system.buckets import on_this_machine
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.terminal import output, say
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from ensembles.recipe import Recipe
    from solution.experiments.base import Experiment
    from solution.store.store import Store
    from solution.training.budget import Budget
    from solution.training.forecast import Forecast
    from solution.training.plan import Plan

# Heavy imports (torch, lightgbm, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()

NOTHING = "nothing_001"
FOLDS, QUICK_FOLDS = 5, 2
CollectionsOption = Annotated[
    list[str], typer.Option("--collection", help="Only this one; may be repeated. Default: all.")
]
ExperimentsOption = Annotated[
    list[str],
    typer.Option(
        "--experiment",
        help="Name, or path of a Python file; may be repeated. Default: what the recipe merges; "
        f"without one {', '.join(DEFAULTS)}.",
    ),
]
StoreFolder = Annotated[
    str | None,
    typer.Option(
        "--store", help="Where DATA is prepared, or s3://BUCKET/NAME. Default: stores/NAME."
    ),
]
Folds = Annotated[int | None, typer.Option(min=2, max=100, help="Default: 5; with --limit 2.")]
Limit = Annotated[
    bool, typer.Option("--limit", help="A quick look: few graphs, one seed, short trainings.")
]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Only say how long it will take, memory and disk.")
]
Hours = Annotated[
    float | None,
    typer.Option(min=0.0, help="Train fewer seeds, folds, epochs where all of it takes longer."),
]
Replace = Annotated[bool, typer.Option("--replace", help="Start the folder afresh.")]


@app.command()
def run(
    data: DataOrAddress = str(SAMPLE),
    run_folder: RunFolder = None,
    experiments: ExperimentsOption = [],  # noqa: B006 - typer copies it
    recipe: RecipeOption = None,
    scheme: FoldScheme = "architecture",
    folds: Folds = None,
    limit: Limit = False,
    replace: Replace = False,
    workers: Workers = None,
    collections: CollectionsOption = [],  # noqa: B006 - typer copies it
    store_folder: StoreFolder = None,
    estimate: Estimate = False,
    hours: Hours = None,
    executor: ExecutorOption = "local",
    address: Address = None,
    gpu_share: GpuShare = 1.0,
    devices: Devices = 1,
) -> None:
    """Train, predict, merge, write a submission. A run that was stopped goes on where it was."""
    members = _list_members(recipe)  # before what takes seconds to import
    from solution.training.forecast import foretell_briefly
    from solution.training.opening import open_store
    from solution.training.out_of_fold import run_experiments

    asked = _Asked(scheme, folds, limit, replace, collections, executor, workers)
    found = _find_experiments(experiments or members, recipe, asked.folds, limit=limit)
    trains_on = make_executor(executor, address, workers, gpu_share, devices)
    with ExitStack() as stack:
        source = check_exists(stack.enter_context(on_this_machine(data, sends=False)))
        name = name_of(source, limit=limit)
        default = find_runs() / "-".join([name, *(c.replace(":", "-") for c in collections)])
        folder = stack.enter_context(on_this_machine(run_folder or default, alone=True))
        check_writable(folder)
        if not estimate:
            asked.check_folder(found, folder, hours)
        merging = _choose_recipe(folder, recipe, [item.name for item in found])
        place = stack.enter_context(on_this_machine(store_folder or find_stores() / name))
        how = {"limit": limit, "named": store_folder is not None}
        store = stack.enter_context(open_store(source, place, found, workers=workers, **how))
        if estimate:
            _show_estimate(found, asked.plan(store), workers)
            return
        budget, known = _choose_budget(found, asked, store, folder, hours)
        found = budget.apply(found)
        plan, opened = stack.enter_context(asked.open(found, store, folder, budget.folds))
        say(foretell_briefly(found, plan, opened, asked.slots, known))
        remember_origin(opened, source, store.folder)
        run_experiments(found, plan, opened, trains_on)
        finish(opened, merging)


@dataclass(frozen=True)
class _Asked:
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
        from solution.training.executors.local import count_slots

        return self.workers or (count_slots() if self.executor == "local" else None)

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
        from solution.training.opening import open_experiments

        return open_experiments(
            found, store, folder, scheme=self.scheme, limit=self.limit, replace=self.replace,
            folds=folds, collections=self.collections,
        )  # fmt: skip


def _show_estimate(found: "list[Experiment]", plan: "Plan", workers: int | None) -> None:
    from solution.training.forecast import forecast, show_forecast

    startup = time.time() - psutil.Process().create_time()
    output.print(show_forecast(forecast(found, plan, slots=workers), plan, workers, startup))


def _choose_budget(
    found: "list[Experiment]",
    asked: _Asked,
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
    if given_up := chosen.describe(whole):
        say(f"{'As this run began' if began else f'To end in {hours:g} hours'}: {given_up}.")
    return chosen, known


def _list_members(recipe: str | None) -> list[str]:
    """What a recipe merges and falls back on, as far as it comes with the package."""
    from ensembles.recipe import find_recipe
    from solution.experiments.base import list_experiments

    if recipe is None:
        return list(DEFAULTS)
    found, known = find_recipe(recipe), list_experiments()
    return [name for name in (*found.names(), found.fallback) if name in known]


def _find_experiments(
    names: Sequence[str], recipe: str | None, folds: int, *, limit: bool
) -> "list[Experiment]":
    """The experiments; without a recipe, doing nothing ranks what they do not, which is free."""
    from solution.training.failures import load_experiment

    added = [] if recipe is not None else [NOTHING]
    found = [load_experiment(name) for name in dict.fromkeys([*names, *added])]
    if not limit:
        return found
    say(f"A quick look: few graphs, one seed, {folds} folds, short trainings. Scores mean little.")
    return [experiment.quick() for experiment in found]


def _choose_recipe(folder: Path, recipe: str | None, names: Sequence[str]) -> "Recipe":
    """What the run will be merged by; what it leaves out is said before the training."""
    from ensembles.last_recipe import choose_before_training, describe_choice

    merging = choose_before_training(folder, recipe, names)
    if told := describe_choice(merging, names):
        say(told)
    return merging


@app.command()
def demo() -> None:
    """A first minute: a few graphs of the sample, short trainings, and a report that opens."""
    from ensembles.last_recipe import choose_recipe
    from submissions.page.build import write_page

    folder = find_runs() / "demo"
    run(
        str(SAMPLE), str(folder), [], None, "architecture", None,
        limit=True, replace=False, workers=None, collections=[], store_folder=None,
        estimate=False, hours=None, executor="local", address=None, gpu_share=1.0, devices=1,
    )  # fmt: skip
    opened = Run.existing(folder)
    path = write_page(opened, choose_recipe(opened, None))
    say(f"Report: {path}")
    if sys.stdout.isatty():
        webbrowser.open(path.resolve().as_uri())
