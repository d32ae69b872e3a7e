"""Commands that train: run, train, tune."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ensembles import DEFAULT_RECIPE
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
from solution.runs.folder import RUNS, STORES
from solution.system.terminal import output, say
from solution.training.folds import Scheme

# Heavy imports (torch, lightgbm, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()

TUNING = Path("tuning")


@app.command()
def run(
    data: Data = SAMPLE,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="Default: runs/NAME of the data folder.")
    ] = None,
    experiment: Annotated[
        list[str], typer.Option(help="Name, or path of a Python file; may be repeated.")
    ] = list(DEFAULTS),  # noqa: B006 - typer copies it
    recipe: RecipeOption = DEFAULT_RECIPE,
    scheme: Annotated[Scheme, typer.Option(help="What stays together in a fold.")] = "architecture",
    folds: Annotated[int, typer.Option(min=2, max=100)] = 5,
    limit: Annotated[bool, typer.Option("--limit", help="A quick look at a few graphs.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Start the folder afresh.")] = False,
    workers: Workers = None,
    store_folder: Annotated[
        Path | None, typer.Option("--store", help="Where DATA is prepared. Default: stores/NAME.")
    ] = None,
) -> None:
    """Train, predict, merge, write a submission. A run that was stopped goes on where it was.

    DATA may be a prepared store; other data is prepared first, in stores/NAME.
    """
    from ensembles.recipe import check_recipe, find_recipe

    merging = find_recipe(recipe)  # before what takes seconds to import
    from solution.experiments.base import find_experiment
    from solution.training.opening import open_experiments, open_store
    from solution.training.out_of_fold import run_experiments

    experiments = [find_experiment(name) for name in dict.fromkeys(experiment)]
    check_recipe(merging, [item.name for item in experiments])
    place = store_folder or STORES / name_of(data, limit=limit)
    folder = run_folder or RUNS / name_of(data, limit=limit)
    named = store_folder is not None
    with (
        open_store(data, place, experiments, limit=limit, named=named, workers=workers) as store,
        open_experiments(
            experiments, store, folder, scheme=scheme, folds=folds, limit=limit, replace=replace
        ) as (plan, opened),
    ):
        run_experiments(experiments, plan, opened, workers)
        finish(opened, recipe)


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
    with (
        open_given_store(data, [found]) as store,
        open_experiments([found], store, folder, scheme=scheme, folds=folds) as (plan, run),
    ):
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
    with open_given_store(data, [found]) as store:
        plan = make_plan(store, "architecture", folds)
        search = Search(found, plan, folder, sampler, seed, prune=prune)
        study = search.run(trials)
    output.print(show_study(study))
    draw_study(study, folder / "study.png")
    say(f"Best settings: {search.best_experiment(study)}. Picture: {folder / 'study.png'}")
