"""Commands that train: run, train, tune."""

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands.options import (
    Data,
    DataOption,
    RecipeOption,
    Workers,
    name_of,
    open_given_store,
)
from solution.commands.results import finish
from solution.data.folders import SAMPLE
from solution.experiments import DEFAULTS
from solution.runs.folder import RUNS, STORES, Run
from solution.runs.origin import remember_origin
from solution.system.files import check_writable
from solution.system.terminal import output, say
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from ensembles.recipe import Recipe
    from solution.experiments.base import Experiment
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
    Path | None, typer.Option("--run", help="Default: runs/NAME of the data folder.")
]
StoreFolder = Annotated[
    Path | None, typer.Option("--store", help="Where DATA is prepared. Default: stores/NAME.")
]
FoldScheme = Annotated[Scheme, typer.Option(help="What stays together in a fold.")]
Folds = Annotated[int | None, typer.Option(min=2, max=100, help="Default: 5; with --limit 2.")]
Limit = Annotated[
    bool, typer.Option("--limit", help="A quick look: few graphs, one seed, short trainings.")
]
Forecast = Annotated[
    bool, typer.Option("--forecast", help="Only say how long it will take, memory and disk.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Start the folder afresh.")]


@app.command()
def run(
    data: Data = SAMPLE,
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
    forecast: Forecast = False,
) -> None:
    """Train, predict, merge, write a submission. A run that was stopped goes on where it was.

    DATA may be a prepared store; other data is prepared first, in stores/NAME.
    """
    members = _list_members(recipe)  # before what takes seconds to import
    from solution.training.opening import open_experiments, open_store
    from solution.training.out_of_fold import run_experiments

    found = _find_experiments(experiments or members, recipe, limit=limit)
    name = name_of(data, limit=limit)
    folder = run_folder or RUNS / "-".join([name, *(c.replace(":", "-") for c in collections)])
    check_writable(folder)
    merging = _choose_recipe(folder, recipe, [item.name for item in found])
    place, named = store_folder or STORES / name, store_folder is not None
    folds = folds or (QUICK_FOLDS if limit else FOLDS)
    with (
        open_store(data, place, found, limit=limit, named=named, workers=workers) as store,
        open_experiments(
            found, store, folder, scheme=scheme, folds=folds, limit=limit, replace=replace,
            collections=collections,
        ) as (plan, opened),
    ):  # fmt: skip
        if forecast:
            _show_forecast(found, plan, workers)
            return
        remember_origin(opened, data, store.folder)
        run_experiments(found, plan, opened, workers)
        finish(opened, merging)


def _show_forecast(found: "list[Experiment]", plan: "Plan", workers: int | None) -> None:
    from solution.training.forecast import forecast, show_forecast

    output.print(show_forecast(forecast(found, plan), plan, workers))


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
        SAMPLE, folder, [], None, "architecture", None,
        limit=True, replace=False, workers=None, collections=[], store_folder=None,
        forecast=False,
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
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="Default: runs/NAME of the data folder.")
    ] = None,
    scheme: Annotated[Scheme, typer.Option(help="What stays together in a fold.")] = "architecture",
    folds: Annotated[int, typer.Option(min=2, max=100)] = 5,
    workers: Workers = None,
) -> None:
    """Train one experiment and watch it: loss, inner score, rate, time left. Stopped, it goes on.

    The models are those of `fastslow run`; what either has trained is there for the other.
    """
    from solution.experiments.base import find_experiment
    from solution.training.opening import open_experiments
    from solution.training.summary import check_collections, train_experiment

    found = find_experiment(experiment)
    chosen = check_collections(found, collection)
    folder = run_folder or RUNS / (data or SAMPLE).resolve().name
    check_writable(folder)
    with (
        open_given_store(data, [found]) as store,
        open_experiments([found], store, folder, scheme=scheme, folds=folds) as (plan, run),
    ):
        remember_origin(run, data or SAMPLE, store.folder)
        output.print(train_experiment(found, chosen, plan, run, workers))
    say(f"Run: {folder}")


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
) -> None:
    """Search an experiment's settings by out-of-fold score. Stopped, it goes on where it was."""
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
        search = Search(found, plan, folder, sampler, seed, prune=prune)
        study = search.run(trials)
    output.print(show_study(study))
    draw_study(study, folder / "study.png")
    say(f"Best settings: {search.best_experiment(study)}. Picture: {folder / 'study.png'}")
