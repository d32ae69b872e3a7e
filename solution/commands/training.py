"""Commands that train: run, train, tune."""

import sys
import time
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import psutil
import typer

from solution.commands.options import (
    Address,
    DataOption,
    DataOrAddress,
    Devices,
    ExecutorOption,
    GpuShare,
    RecipeOption,
    Workers,
    make_executor,
    name_of,
    open_given_store,
)
from solution.commands.results import finish
from solution.data.folders import SAMPLE, check_exists
from solution.experiments import DEFAULTS
from solution.runs.folder import RUNS, STORES, Run
from solution.runs.origin import remember_origin
from solution.system.buckets import folder_of, is_address, on_this_machine
from solution.system.files import check_writable
from solution.system.terminal import output, say
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from ensembles.recipe import Recipe
    from solution.experiments.base import Experiment
    from solution.store.store import Store
    from solution.training.budget import Budget
    from solution.training.plan import Plan

# Heavy imports (torch, lightgbm, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()

TUNING = Path("tuning")
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
RunFolder = Annotated[
    str | None,
    typer.Option("--run", help="Or s3://BUCKET/NAME. Default: runs/NAME of the data folder."),
]
StoreFolder = Annotated[
    str | None,
    typer.Option(
        "--store", help="Where DATA is prepared, or s3://BUCKET/NAME. Default: stores/NAME."
    ),
]
FoldScheme = Annotated[Scheme, typer.Option(help="What stays together in a fold.")]
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
    """Train, predict, merge, write a submission. A run that was stopped goes on where it was.

    DATA may be a prepared store; other data is prepared first, in stores/NAME.
    """
    members = _list_members(recipe)  # before what takes seconds to import
    from solution.training.forecast import foretell_briefly
    from solution.training.opening import open_experiments, open_store
    from solution.training.out_of_fold import run_experiments

    found = _find_experiments(experiments or members, recipe, limit=limit)
    trains_on = make_executor(executor, address, workers, gpu_share, devices)
    with ExitStack() as stack:
        source = check_exists(stack.enter_context(on_this_machine(data, sends=False)))
        name = name_of(source, limit=limit)
        default = RUNS / "-".join([name, *(c.replace(":", "-") for c in collections)])
        folder = stack.enter_context(on_this_machine(run_folder or default, alone=True))
        check_writable(folder)
        merging = _choose_recipe(folder, recipe, [item.name for item in found])
        place = stack.enter_context(on_this_machine(store_folder or STORES / name))
        how = {"limit": limit, "named": store_folder is not None}
        store = stack.enter_context(open_store(source, place, found, workers=workers, **how))
        asked = _Asked(scheme, folds or (QUICK_FOLDS if limit else FOLDS), limit, collections)
        if estimate:
            _show_estimate(found, asked.plan(store), workers)
            return
        budget = _choose_budget(found, asked, store, folder, hours, workers, replace=replace)
        found = budget.apply(found)
        plan, opened = stack.enter_context(
            open_experiments(
                found, store, folder, scheme=scheme, limit=limit, replace=replace,
                folds=budget.folds, collections=collections,
            )
        )  # fmt: skip
        say(foretell_briefly(found, plan, workers))
        remember_origin(opened, source, store.folder)
        run_experiments(found, plan, opened, trains_on)
        finish(opened, merging)


@dataclass(frozen=True)
class _Asked:
    """Which folds of which graphs."""

    scheme: Scheme
    folds: int
    limit: bool
    collections: Sequence[str]

    def plan(self, store: "Store") -> "Plan":
        from solution.training.opening import check_labels
        from solution.training.plan import make_plan

        plan = make_plan(
            store, self.scheme, self.folds, limit=self.limit, collections=self.collections
        )
        check_labels(plan)
        return plan


def _show_estimate(found: "list[Experiment]", plan: "Plan", workers: int | None) -> None:
    from solution.training.forecast import forecast, show_forecast

    startup = time.time() - psutil.Process().create_time()
    output.print(show_forecast(forecast(found, plan), plan, workers, startup))


def _choose_budget(
    found: "list[Experiment]",
    asked: _Asked,
    store: "Store",
    folder: Path,
    hours: float | None,
    workers: int | None,
    *,
    replace: bool,
) -> "Budget":
    """What is trained: what the run began with, or what fits into the hours, or everything."""
    from solution.training import budget as budgets
    from solution.training.executors.local import count_slots
    from solution.training.forecast import forecast, foretell_merging

    begin, whole = time.monotonic(), budgets.find_whole(found, asked.folds)
    began = None if replace else budgets.recall_budget(folder, found, asked.folds)
    chosen = began or whole
    if hours is not None and began is None:
        say("Watching the first steps of each kind of model, to say what fits ...")
        lines = forecast(found, asked.plan(store))
        beside = foretell_merging(lines) + time.monotonic() - begin
        slots = workers or count_slots()
        chosen = budgets.choose_budget(lines, found, asked.folds, hours, slots, beside)
        if chosen == whole:
            say(f"All of it fits into {hours:g} hours.")
    if given_up := chosen.describe(whole):
        say(f"{'As this run began' if began else f'To end in {hours:g} hours'}: {given_up}.")
    return chosen


def _list_members(recipe: str | None) -> list[str]:
    """What a recipe merges and falls back on, as far as it comes with the package."""
    from ensembles.recipe import find_recipe
    from solution.experiments.base import list_experiments

    if recipe is None:
        return list(DEFAULTS)
    found, known = find_recipe(recipe), list_experiments()
    return [name for name in (*found.names(), found.fallback) if name in known]


def _find_experiments(
    names: Sequence[str], recipe: str | None, *, limit: bool
) -> "list[Experiment]":
    """The experiments; without a recipe, doing nothing ranks what they do not, which is free."""
    from solution.experiments.base import find_experiment

    added = [] if recipe is not None else [NOTHING]
    found = [find_experiment(name) for name in dict.fromkeys([*names, *added])]
    if not limit:
        return found
    say("A quick look: few graphs, one seed, two folds, short trainings. Scores mean little.")
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

    folder = RUNS / "demo"
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


@app.command()
def train(
    experiment: Annotated[str, typer.Argument(help="Name, or path of a Python file.")],
    collection: Annotated[
        list[str], typer.Option(help="Only this one; may be repeated. Default: all it has.")
    ] = [],  # noqa: B006 - typer copies it
    data: DataOption = None,
    run_folder: RunFolder = None,
    scheme: FoldScheme = "architecture",
    folds: Annotated[int, typer.Option(min=2, max=100)] = 5,
    workers: Workers = None,
    executor: ExecutorOption = "local",
    address: Address = None,
    gpu_share: GpuShare = 1.0,
    devices: Devices = 1,
) -> None:
    """Train one experiment and watch it: loss, inner score, rate, time left. Stopped, it goes on.

    The models are those of `fastslow run`; what either has trained is there for the other.
    """
    from solution.experiments.base import find_experiment
    from solution.training.opening import open_experiments
    from solution.training.summary import check_collections, train_experiment

    found = find_experiment(experiment)
    chosen = check_collections(found, collection)
    source = folder_of(data or str(SAMPLE))
    place = run_folder or str(RUNS / name_of(source, limit=False))
    if not is_address(place):
        check_writable(Path(place))
    trains_on = make_executor(executor, address, workers, gpu_share, devices)
    with (
        on_this_machine(place, alone=True) as folder,
        open_given_store(data, [found]) as store,
        open_experiments([found], store, folder, scheme=scheme, folds=folds) as (plan, run),
    ):
        remember_origin(run, source, store.folder)
        output.print(train_experiment(found, chosen, plan, run, trains_on))
    say(f"Run: {place}")


@app.command()
def tune(
    experiment: Annotated[str, typer.Argument(help="Name, or path of a Python file.")],
    data: DataOption = None,
    trials: Annotated[int, typer.Option(min=1, help="In all, with those of earlier runs.")] = 25,
    folds: Annotated[int, typer.Option(min=2, max=100)] = 4,
    sampler: Annotated[
        Literal["tpe", "random"], typer.Option(help="random: the randomised search.")
    ] = "tpe",
    collection: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Default: tuning/EXPERIMENT.")] = None,
    prune: Annotated[bool, typer.Option(help="Give up trials that are worse than most.")] = True,
    seed: Annotated[int, typer.Option(help="Of the search and of the models.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trials at once. Default: 1; on a cluster its cores.")
    ] = None,
    executor: ExecutorOption = "local",
    address: Address = None,
    gpu_share: GpuShare = 1.0,
) -> None:
    """Search an experiment's settings by out-of-fold score. Stopped, it goes on where it was.

    Trials at once are asked for together and told in their order, so what is found depends on how
    many there are, but not on where they are done.
    """
    from dataclasses import replace

    from solution.domain.collection import collection as find_collection
    from solution.experiments.base import find_experiment
    from solution.training.plan import make_plan
    from solution.tuning.search import Search, show_study
    from solution.tuning.study_picture import draw_study

    found = find_experiment(experiment)
    if collection is not None:
        found = replace(found, collections=(find_collection(collection).name,))
    folder = out or TUNING / found.name
    check_writable(folder)
    with open_given_store(data, [found]) as store:
        plan = make_plan(store, "architecture", folds)
        at_once = workers or (1 if executor == "local" else None)
        tried_on = make_executor(executor, address, at_once, gpu_share)
        search = Search(
            found, plan, folder, sampler, seed, prune=prune, executor=tried_on, at_once=at_once
        )
        study = search.run(trials)
    output.print(show_study(study))
    draw_study(study, folder / "study.png")
    say(f"Best settings: {search.best_experiment(study)}. Picture: {folder / 'study.png'}")
