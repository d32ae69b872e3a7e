"""Commands that train one experiment: train, tune."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands.options import (
    ClusterAddress,
    DataOption,
    ExecutorOption,
    FoldScheme,
    GpuShare,
    MixLabels,
    RunFolder,
    Seed,
    Workers,
    make_executor,
    name_of,
    open_given_store,
)
from solution.data.folders import SAMPLE
from solution.runs.folder import EXPERIMENTS, find_runs, remember_origin
from solution.system.buckets import Mirror, on_this_machine
from solution.system.files import check_writable
from solution.system.names import is_address
from solution.system.terminal import output, say

if TYPE_CHECKING:
    from solution.store.store import Store
    from solution.training.plan import Plan

# Heavy imports (torch, lightgbm, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()

TUNING = Path("tuning")


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
    address: ClusterAddress = None,
    gpu_share: GpuShare = 1.0,
    mixes: MixLabels = False,
) -> None:
    """Train one experiment and watch it: loss, inner score, rate, time left. Stopped, it goes on.

    The models are those of `fastslow run`; what either has trained is there for the other.
    """
    from solution.runs.record import check_folder
    from solution.training.failures import load_experiment
    from solution.training.opening import open_experiments
    from solution.training.out_of_fold import check_collections, train_experiment

    found = load_experiment(experiment)
    chosen = check_collections(found, collection)
    given = data or str(SAMPLE)
    source = Mirror.of(given).folder if is_address(given) else Path(given)
    place = run_folder or str(find_runs() / name_of(source, limit=False))
    if not is_address(place):
        check_writable(Path(place))
    trains_on = make_executor(executor, address, workers, gpu_share)
    known = {EXPERIMENTS: {found.name: found.describe()}, "scheme": scheme, "folds": folds}
    with on_this_machine(place, alone=True) as folder:
        check_folder(folder, known)  # check it before the data is prepared
        with (
            open_given_store(data, [found]) as store,
            open_experiments([found], store, folder, scheme=scheme, folds=folds, mixes=mixes) as (
                plan,
                run,
            ),
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
    seed: Seed = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trials at once. Default: 1; on a cluster its cores.")
    ] = None,
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    gpu_share: GpuShare = 1.0,
    mixes: MixLabels = False,
) -> None:
    """Search an experiment's settings by out-of-fold score. Stopped, it goes on where it was.

    Trials at once are asked for together and told in their order, so what is found depends on how
    many there are, but not on where they are done.
    """
    from dataclasses import replace

    from solution.training.failures import load_experiment
    from solution.training.out_of_fold import check_collections
    from solution.tuning.search import Search, show_study
    from solution.tuning.space import find_searched
    from solution.tuning.study_picture import draw_study

    found = load_experiment(experiment)
    if collection is not None:
        found = replace(found, collections=check_collections(found, [collection]))
    find_searched(found.ranker)  # raises, before slow work, if there is nothing to search
    folder = out or TUNING / found.name
    check_writable(folder)
    at_once = workers or (1 if executor == "local" else None)
    tried_on = make_executor(executor, address, at_once, gpu_share)
    with open_given_store(data, [found]) as store:
        plan = _make_plan(store, folds, mixes=mixes)
        search = Search(
            found, plan, folder, sampler, seed, prune=prune, executor=tried_on, at_once=at_once
        )
        study = search.run(trials)
    output.print(show_study(study))
    draw_study(study, folder / "study.png")
    say(f"Best settings: {search.best_experiment(study)}. Picture: {folder / 'study.png'}")


def _make_plan(store: "Store", folds: int, *, mixes: bool) -> "Plan":
    """Return the folds on which trials are scored; reject mixed label sources unless asked for."""
    from solution.training.opening import check_mixture
    from solution.training.plan import make_plan

    plan = make_plan(store, "architecture", folds)
    check_mixture(plan, mixes=mixes)
    return plan
