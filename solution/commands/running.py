"""Commands that do everything, from files to a submission: run, demo."""

import dataclasses
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from psutil import Process

from ensembles import DEFAULT_RECIPE, SAMPLE_RECIPE
from solution.commands import options
from solution.commands.results import finish
from solution.data.folders import SAMPLE, check_exists, choose_sample
from solution.runs.folder import (
    EXPERIMENTS,
    QUICK_LOOK,
    Run,
    find_runs,
    find_stores,
    remember_origin,
)
from solution.system.buckets import on_this_machine
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.terminal import is_screen, output, say
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from ensembles.recipe import Recipe
    from solution.experiments.base import Experiment
    from solution.store.store import Store
    from solution.training.forecast import RunBudget
    from solution.training.plan import Plan

# Slow imports (torch, lightgbm, matplotlib, polars) are inside the commands that need them.

app = typer.Typer()

NOTHING = "nothing_001"
ALL_PLANNED = "all seeds, folds and epochs"
FOLDS, QUICK_FOLDS = 5, 2


CollectionsOption = Annotated[
    list[str],
    typer.Option(
        "--collection",
        callback=lambda names: [*dict.fromkeys(names)],  # drops repeated names
        help="Use only this collection; may be repeated. Default: all.",
    ),
]
ExperimentsOption = Annotated[
    list[str],
    typer.Option(
        "--experiment",
        help="Experiment to train: name, or path of a Python file; may be repeated. Default: the "
        "members of the recipe.",
    ),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        help="Name of a recipe, or path of a TOML file. Default: the run's last recipe, else "
        f"{DEFAULT_RECIPE}; on the bundled sample and with --limit {SAMPLE_RECIPE}, the quick one."
    ),
]
StoreFolder = Annotated[
    str | None,
    typer.Option(
        "--store",
        callback=options.check_written,
        help="Folder of the prepared data, or s3://BUCKET/NAME. Default: stores/NAME.",
    ),
]
Folds = Annotated[
    int | None, typer.Option(min=2, max=100, help="Number of folds. Default: 5; with --limit 2.")
]
Limit = Annotated[bool, typer.Option("--limit", help=f"A quick look: {QUICK_LOOK}.")]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Only say how much time, memory and disk it will take.")
]
Hours = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        callback=options.check_finite,
        help="Time limit: train fewer seeds, folds or epochs to keep it.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Delete the run's folder first.")]


@app.command()
def run(
    data: options.DataOrAddress = str(SAMPLE),
    run_folder: options.RunFolder = None,
    experiments: ExperimentsOption = [],  # noqa: B006 - typer copies it
    recipe: RecipeOption = None,
    scheme: options.FoldScheme = "architecture",
    folds: Folds = None,
    limit: Limit = False,
    replace: Replace = False,
    workers: options.Workers = None,
    collections: CollectionsOption = [],  # noqa: B006 - typer copies it
    store_folder: StoreFolder = None,
    estimate: Estimate = False,
    hours: Hours = None,
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
    gpu_share: options.GpuShare = 1.0,
    mixes: options.MixLabels = False,
) -> None:
    """Get a submission from your data: train, predict, merge, write. Resumes if stopped."""
    members = experiments or _list_named(recipe)  # checks the recipe before slow imports
    from solution.training.jobs import find_backlog
    from solution.training.out_of_fold import run_experiments

    folds = folds or (QUICK_FOLDS if limit else FOLDS)
    divided = Division(scheme, folds, limit, collections, mixes)
    find = partial(_find_experiments, recipe=recipe, folds=folds, limit=limit)
    found = find(members) if members else []  # before data is fetched
    trains_on = options.make_executor(executor, address, workers, gpu_share)
    slots = workers if trains_on.is_away else trains_on.slots
    with ExitStack() as stack:
        source = check_exists(stack.enter_context(on_this_machine(data, sends=False)))
        name = options.name_of(source, limit=limit)
        default = find_runs() / "-".join([name, *(c.replace(":", "-") for c in collections)])
        folder = stack.enter_context(on_this_machine(run_folder or default, alone=True))
        check_writable(folder)
        found = found or find(_list_defaults(source, folder, limit=limit, afresh=replace))
        began = None if estimate else _recall(folder, divided, found, hours=hours, afresh=replace)
        merging = _choose_recipe(folder, recipe, found, afresh=replace)
        prepared = stack.enter_context(on_this_machine(store_folder or find_stores() / name))
        how = store_folder is not None, workers
        store = stack.enter_context(divided.prepare(found, source, prepared, *how))
        if estimate:
            _show_estimate(found, divided.plan(found, store), slots or 1, folds, hours)
            return
        found, divided, plan = _settle(found, store, divided, began, slots, hours)
        opened = stack.enter_context(divided.open(found, plan, folder, afresh=replace))
        remember_origin(opened, source, store.folder)
        run_experiments(find_backlog(found, plan, opened), plan, opened, trains_on)
        finish(opened, merging)


@dataclass(frozen=True)
class Division:
    """The choice of a run's graphs, and how they are divided into folds."""

    scheme: Scheme
    folds: int
    limit: bool
    collections: Sequence[str]
    mixes: bool  # training may use timed and estimated labels together

    def prepare(
        self,
        found: "list[Experiment]",
        source: Path,
        folder: Path,
        named: bool,
        workers: int | None,
    ) -> "AbstractContextManager[Store]":
        """Return a context manager that yields the store of the prepared data; see open_store.
        Raises InputError if the data's sample submission is not sound, before anything is trained.
        """
        from solution.training.opening import open_store
        from submissions.writer import read_sample

        read_sample(choose_sample(source))
        return open_store(
            source, folder, found, collections=self.collections, limit=self.limit, named=named,
            workers=workers,
        )  # fmt: skip

    def plan(self, found: "list[Experiment]", store: "Store") -> "Plan":
        """Return the plan: the selected graphs, divided into folds. Raises InputError if no graph
        has labels, or no experiment ranks any of the graphs, or labels have several sources and
        `mixes` is False."""
        from solution.training.opening import check_experiments, check_labels, check_mixture
        from solution.training.plan import make_plan

        plan = make_plan(
            store, self.scheme, self.folds, limit=self.limit, collections=self.collections
        )
        check_labels(plan)
        check_mixture(plan, mixes=self.mixes)
        check_experiments(found, plan)
        return plan

    @contextmanager
    def open(
        self, found: "list[Experiment]", plan: "Plan", folder: Path, *, afresh: bool
    ) -> "Iterator[Run]":
        """Warn of graphs that exist twice; then begin or resume the run, and yield it."""
        from solution.analysis.data_check import find_equal_graphs
        from solution.system.progress import warn
        from solution.training.opening import describe_run, open_planned

        for words in find_equal_graphs(plan.store.graphs):
            warn(words)
        settings = describe_run(found, plan, self.scheme, self.folds)
        with open_planned(
            found, plan, folder, settings, quick=self.limit, replace=afresh,
            collections=self.collections,
        ) as run:  # fmt: skip
            yield run


def _recall(
    folder: Path, divided: Division, found: "list[Experiment]", *, hours: float | None, afresh: bool
) -> "RunBudget | None":
    """Return the budget (seeds, folds, epochs) with which the run in the folder was begun. The
    result is None if there is no such run, or if it will be started afresh. Raises InputError if
    the folder has a run with other settings."""
    from solution.runs.record import check_folder
    from solution.training.forecast import list_budgets, recall_budget

    began = None if afresh else recall_budget(folder, found, divided.folds)
    known: dict[str, object] = {"scheme": divided.scheme}
    # Compare folds and experiments with the folder's run. If a new run has a time limit, they are
    # chosen later, so they cannot be compared yet.
    if began or hours is None:
        budget = began or list_budgets(found, divided.folds)[0]
        described = {item.name: item.describe() for item in budget.apply(found)}
        known |= {"folds": budget.folds, EXPERIMENTS: described}
    check_folder(folder, known, replace=afresh)
    return began


def _settle(
    found: "list[Experiment]",
    store: "Store",
    divided: Division,
    began: "RunBudget | None",
    slots: int | None,
    hours: float | None,
) -> "tuple[list[Experiment], Division, Plan]":
    """Return the experiments to train, how the graphs are divided, and the plan. A run that was
    begun keeps its experiments and folds. A new run gets what fits into `hours`, or everything if
    there is no time limit. `slots`: number of models that are trained at once; None: not known."""
    from solution.training import forecast

    plan, whole = divided.plan(found, store), forecast.list_budgets(found, divided.folds)[0]
    budget = began or whole
    if began is None and hours is not None:
        if slots is None:
            raise InputError(
                "--hours needs the number of models that a cluster trains at once: give --workers."
            )
        say("Measuring the first steps of each kind of model, to choose what fits ...")
        begin = time.monotonic()
        lines = forecast.forecast(found, plan, slots)
        spent = time.monotonic() - begin
        budget = forecast.choose_budget(lines, found, divided.folds, hours, slots, spent)
    given_up = budget.describe(whole)
    if began and (given_up or hours is not None):
        unchanged = "" if hours is None else " --hours changes nothing of it."
        say(f"The run goes on as it began: {given_up or ALL_PLANNED}.{unchanged}")
    elif hours is not None:
        say(f"--hours {hours:g}: {given_up or ALL_PLANNED}.")
    if budget.folds != divided.folds:
        divided = dataclasses.replace(divided, folds=budget.folds)
        plan = divided.plan(found, store)
    return budget.apply(found), divided, plan


def _show_estimate(
    found: "list[Experiment]", plan: "Plan", slots: int, folds: int, hours: float | None
) -> None:
    """Print the time that the whole run takes if `slots` models are trained at once, and what fits
    into `hours`."""
    from solution.training import forecast

    startup = time.time() - Process().create_time()
    lines = forecast.forecast(found, plan, slots)
    output.print(forecast.show_forecast(lines, plan, slots, startup))
    if hours is not None:
        whole = forecast.list_budgets(found, folds)[0]
        budget = forecast.choose_budget(lines, found, folds, hours, slots, startup)
        say(f"--hours {hours:g}: {budget.describe(whole) or ALL_PLANNED}.")


def _list_defaults(data: Path, folder: Path, *, limit: bool, afresh: bool) -> list[str]:
    """Return the experiments that a run in the folder trains if none is given. These are the
    members of the recipe of its last merge, if the run has them and the package still does, and it
    is not started `afresh`; otherwise the experiments of find_default_recipe()."""
    from ensembles.recipe import recall
    from solution.training.opening import find_default_recipe

    recalled = None if afresh else recall(folder)
    if recalled is not None:
        members = _list_members(recalled)
        if {*recalled.names(), *members} <= {*members} & {*Run.existing(folder).experiments()}:
            return members
    return _list_members(find_default_recipe(data, limit=limit))


def _list_named(recipe: str | None) -> list[str]:
    """Return the experiments that the recipe of this name merges or falls back on; none if no
    recipe is named."""
    from ensembles.recipe import find_recipe

    return [] if recipe is None else _list_members(find_recipe(recipe))


def _list_members(recipe: "Recipe") -> list[str]:
    """Return the recipe's members and fallback that are experiments of the package."""
    from solution.experiments.base import list_experiments

    known = list_experiments()
    return [name for name in recipe.experiments() if name in known]


def _find_experiments(
    names: Sequence[str], *, recipe: str | None, folds: int, limit: bool
) -> "list[Experiment]":
    """Return the experiments of these names; with `limit`, their quick variants. Without a recipe,
    the free baseline NOTHING is added for collections that no other experiment ranks. Raises
    InputError if two experiments have the same name."""
    from solution.training.failures import load_experiment

    added = [] if recipe is not None else [NOTHING]
    found = [load_experiment(name) for name in dict.fromkeys([*names, *added])]
    for one, other in combinations(found, 2):
        if one.name == other.name:
            raise InputError(
                f"{one.origin} and {other.origin} are both called {one.name}: one would replace "
                "the other. Give a file, and the experiment in it, another name."
            )
    if not limit:
        return found
    say(f"A quick look: {QUICK_LOOK}, {folds} folds. Scores mean little.")
    return [experiment.quick() for experiment in found]


def _choose_recipe(
    folder: Path, recipe: str | None, found: "Sequence[Experiment]", *, afresh: bool
) -> "Recipe":
    """Return the recipe that will merge the run; print which experiments the recipe leaves out."""
    from ensembles.recipe import choose_before_training, describe_choice

    names = [item.name for item in found]
    merging = choose_before_training(folder, recipe, names, afresh=afresh)
    if told := describe_choice(merging, names):
        say(told)
    return merging


@app.command()
def demo() -> None:
    """Get a first report in minutes: short trainings on a few graphs of the sample."""
    from ensembles.recipe import choose_recipe
    from submissions.page.build import write_page

    folder = find_runs() / "demo"
    run(run_folder=str(folder), limit=True)
    opened = Run.existing(folder)
    path = write_page(opened, choose_recipe(opened, None))
    say(f"Report: {path}")
    if is_screen(sys.stdout):
        webbrowser.open(path.resolve().as_uri())
