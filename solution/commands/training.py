"""Commands that train one experiment: train, tune."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands import options
from solution.data.folders import SAMPLE
from solution.runs.folder import EXPERIMENTS, find_runs, remember_origin
from solution.system.buckets import Mirror, on_this_machine
from solution.system.files import check_writable
from solution.system.names import is_address
from solution.system.terminal import output, say

if TYPE_CHECKING:
    from solution.store.store import Store
    from solution.training.plan import Plan

# Slow imports (torch, lightgbm, matplotlib, polars) are inside the commands that need them.

app = typer.Typer()

TUNING = Path("tuning")
ExperimentName = Annotated[
    str, typer.Argument(help="Name of an experiment, or path of a Python file.")
]


@app.command()
def train(
    experiment: ExperimentName,
    collection: Annotated[
        list[str],
        typer.Option(help="Use only this collection; may be repeated. Default: all it ranks."),
    ] = [],  # noqa: B006 - typer copies the list
    data: options.DataOption = None,
    run_folder: options.RunFolder = None,
    scheme: options.FoldScheme = "architecture",
    folds: Annotated[int, typer.Option(min=2, max=100)] = 5,
    workers: options.Workers = None,
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
    gpu_share: options.GpuShare = 1.0,
    mixes: options.MixLabels = False,
) -> None:
    """Get one trained experiment, and watch loss, inner score, rate and time left. Resumes.

    The models are shared with `fastslow run`: what one of the commands trained, the other reuses.
    """
    from solution.runs.record import check_folder
    from solution.training.failures import load_experiment
    from solution.training.opening import open_experiments
    from solution.training.out_of_fold import check_collections, train_experiment

    found = load_experiment(experiment)
    chosen = check_collections(found, collection)
    given = data or str(SAMPLE)
    source = Mirror.of(given).folder if is_address(given) else Path(given)
    target = run_folder or str(find_runs() / options.name_of(source, limit=False))
    if not is_address(target):
        check_writable(Path(target))
    trains_on = options.make_executor(executor, address, workers, gpu_share)
    known = {EXPERIMENTS: {found.name: found.describe()}, "scheme": scheme, "folds": folds}
    with on_this_machine(target, alone=True) as folder:
        check_folder(folder, known)  # check before the data is prepared, which is slow
        with (
            options.open_given_store(data, [found]) as store,
            open_experiments([found], store, folder, scheme=scheme, folds=folds, mixes=mixes) as (
                plan,
                run,
            ),
        ):
            remember_origin(run, source, store.folder)
            output.print(train_experiment(found, chosen, plan, run, trains_on))
    say(f"Run: {target}")


@app.command()
def tune(
    experiment: ExperimentName,
    data: options.DataOption = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Number of trials, with those of earlier runs.")
    ] = 25,
    folds: Annotated[int, typer.Option(min=2, max=100)] = 4,
    sampler: Annotated[Literal["tpe", "random"], typer.Option(help="Search method.")] = "tpe",
    collection: Annotated[str | None, typer.Option(help="Only this collection.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study. Default: tuning/EXPERIMENT.")
    ] = None,
    prune: Annotated[bool, typer.Option(help="Stop trials that are worse than most.")] = True,
    seed: options.Seed = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Parallel trials. Default: 1; on a cluster its cores.")
    ] = None,
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
    gpu_share: options.GpuShare = 1.0,
    mixes: options.MixLabels = False,
) -> None:
    """Get better settings for an experiment, searched by out-of-fold score. Resumes if stopped.

    The result depends on the number of parallel trials, but not on where they run: they are
    proposed together, and their scores are recorded in this order.
    """
    from solution.training.failures import load_experiment
    from solution.training.out_of_fold import check_collections
    from solution.tuning.search import Search, show_study
    from solution.tuning.space import find_searched
    from solution.tuning.study_picture import draw_study

    found = load_experiment(experiment)
    if collection is not None:
        found = dataclasses.replace(found, collections=check_collections(found, [collection]))
    find_searched(found.ranker)  # raises InputError before slow work if nothing can be searched
    folder = out or TUNING / found.name
    check_writable(folder)
    at_once = workers or (1 if executor == "local" else None)
    tried_on = options.make_executor(executor, address, at_once, gpu_share)
    with options.open_given_store(data, [found]) as store:
        plan = _make_plan(store, folds, mixes=mixes)
        search = Search(
            found, plan, folder, sampler, seed, prune=prune, executor=tried_on, at_once=at_once
        )
        study = search.run(trials)
    output.print(show_study(study))
    draw_study(study, folder / "study.png")
    say(f"Best settings: {search.best_experiment(study)}. Picture: {folder / 'study.png'}")


def _make_plan(store: "Store", folds: int, *, mixes: bool) -> "Plan":
    from solution.training.opening import check_mixture
    from solution.training.plan import make_plan

    plan = make_plan(store, "architecture", folds)
    check_mixture(plan, mixes=mixes)
    return plan
