"""Commands that do all of it, from files to a submission: run, demo."""

import sys
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solution.commands.asking import Asked, settle_budget, show_estimate
from solution.commands.options import (
    Address,
    DataOrAddress,
    ExecutorOption,
    FoldScheme,
    GpuShare,
    RecipeOption,
    RunFolder,
    Workers,
    check_finite,
    check_written,
    make_executor,
    name_of,
)
from solution.commands.results import finish
from solution.data.folders import SAMPLE, check_exists
from solution.experiments import DEFAULTS
from solution.runs.folder import QUICK_LOOK, Run, find_runs, find_stores
from solution.runs.origin import remember_origin
from solution.system.buckets import on_this_machine
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.terminal import is_screen, say

if TYPE_CHECKING:
    from ensembles.recipe import Recipe
    from solution.experiments.base import Experiment

# Heavy imports (torch, lightgbm, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()

NOTHING = "nothing_001"


def _name_once(names: list[str]) -> list[str]:
    """The names without those that were given again."""
    return [*dict.fromkeys(names)]


CollectionsOption = Annotated[
    list[str],
    typer.Option(
        "--collection", callback=_name_once, help="Only this one; may be repeated. Default: all."
    ),
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
        "--store",
        callback=check_written,
        help="Where DATA is prepared, or s3://BUCKET/NAME. Default: stores/NAME.",
    ),
]
Folds = Annotated[int | None, typer.Option(min=2, max=100, help="Default: 5; with --limit 2.")]
Limit = Annotated[bool, typer.Option("--limit", help=f"A quick look: {QUICK_LOOK}.")]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Only say how long it will take, memory and disk.")
]
Hours = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        callback=check_finite,
        help="Train fewer seeds, folds, epochs where all of it takes longer.",
    ),
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
) -> None:
    """Train, predict, merge, write a submission. A run that was stopped goes on where it was."""
    members = _list_members(recipe)  # before what takes seconds to import
    from solution.training.forecast import foretell_briefly
    from solution.training.out_of_fold import run_experiments

    asked = Asked(scheme, folds, limit, replace, collections, executor, workers)
    found = _find_experiments(experiments or members, recipe, asked.folds, limit=limit)
    trains_on = make_executor(executor, address, workers, gpu_share)
    with ExitStack() as stack:
        source = check_exists(stack.enter_context(on_this_machine(data, sends=False)))
        name = name_of(source, limit=limit)
        default = find_runs() / "-".join([name, *(c.replace(":", "-") for c in asked.collections)])
        folder = stack.enter_context(on_this_machine(run_folder or default, alone=True))
        check_writable(folder)
        if not estimate:
            asked.check_folder(found, folder, hours)
        merging = _choose_recipe(folder, recipe, [item.name for item in found])
        place = stack.enter_context(on_this_machine(store_folder or find_stores() / name))
        named = store_folder is not None
        store = stack.enter_context(asked.prepare(found, source, place, named=named))
        if estimate:
            show_estimate(found, asked, store, hours)
            return
        budget, known = settle_budget(found, asked, store, folder, hours)
        found = budget.apply(found)
        plan, opened = stack.enter_context(asked.open(found, store, folder, budget.folds))
        say(foretell_briefly(found, plan, opened, asked.slots, known))
        remember_origin(opened, source, store.folder)
        run_experiments(found, plan, opened, trains_on)
        finish(opened, merging)


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
    from solution.training.own_files import load_experiment

    added = [] if recipe is not None else [NOTHING]
    found = [load_experiment(name) for name in dict.fromkeys([*names, *added])]
    for one, other in combinations(found, 2):
        if one.name == other.name:
            raise InputError(
                f"{one.origin} and {other.origin} are both called {one.name}: one would take the "
                "place of the other. Give a file, and the experiment in it, another name."
            )
    if not limit:
        return found
    say(f"A quick look: {QUICK_LOOK}, {folds} folds. Scores mean little.")
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
        estimate=False, hours=None, executor="local", address=None, gpu_share=1.0,
    )  # fmt: skip
    opened = Run.existing(folder)
    path = write_page(opened, choose_recipe(opened, None))
    say(f"Report: {path}")
    if is_screen(sys.stdout):
        webbrowser.open(path.resolve().as_uri())
