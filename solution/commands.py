"""The commands for one experiment and for tables: train, features, module, explain, tune."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.data.folders import SAMPLE, check_exists
from solution.runs.folder import RUNS, STORES, Run
from solution.system.terminal import output, say
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from solution.experiments.base import Experiment
    from solution.store.store import Store

# Heavy imports (lightgbm, optuna, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()

TUNING = Path("tuning")
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", callback=check_exists, help="The data or a prepared store. Default: the sample."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes at once. Default: one per GPU, else per core with 5 GB of memory."
    ),
]


@app.command()
def train(
    experiment: Annotated[str, typer.Argument(help="Name, or path of a Python file.")],
    collection: Annotated[
        list[str], typer.Option(help="Only this one; may be repeated. Default: all it has.")
    ] = [],  # noqa: B006 - typer copies it
    data: Data = None,
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
    store = _open_store(data, [found])
    folder = run_folder or RUNS / (data or SAMPLE).resolve().name
    with open_experiments([found], store, folder, scheme=scheme, folds=folds) as (plan, run):
        output.print(train_experiment(found, chosen, plan, run, workers))
    say(f"Run: {folder}")


@app.command()
def features(
    collection: Annotated[
        str | None, typer.Argument(help="One, as tile:xla. Default: all tables are listed.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the collection's table here, as Parquet.")
    ] = None,
    data: Data = None,
) -> None:
    """List the columns of the feature tables with units and reasons, or write one."""
    from solution.analysis.feature_lists import (
        show_features,
        show_module_features,
        write_collection,
    )
    from solution.domain.collection import collection as find_collection
    from solution.features.columns import FEATURES
    from solution.system.errors import InputError

    chosen = find_collection(collection) if collection else None
    if out is None:
        for kind in [chosen.kind] if chosen else FEATURES:
            output.print(show_features(kind))
        if chosen is None:
            output.print(show_module_features())
        return
    if chosen is None:
        raise InputError("--out needs a collection, as in `fastslow features tile:xla --out FILE`.")
    rows = write_collection(_open_store(data), chosen, out)
    say(f"{out}: {rows:,} rows.")


@app.command()
def module(
    file: Annotated[Path, typer.Argument(help="TuningData, ModuleTuningData or a dump of XLA's.")],
    to: Annotated[
        Path | None, typer.Option(help="Write npz files below this folder, beside what is there.")
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Of layout graphs. Default: layout:xla:random.")
    ] = None,
    split: Annotated[
        Literal["train", "valid", "test"] | None,
        typer.Option(help="Default: train where there are runtimes, else test."),
    ] = None,
    features_file: Annotated[
        Path | None, typer.Option("--features", help="Write what npz files lack, as Parquet.")
    ] = None,
) -> None:
    """Show the programs of a protobuf file as a table, and make them files to rank.

    XLA dumps them where XLA_FLAGS has --xla_dump_to=FOLDER --xla_dump_hlo_as_proto. One without
    runs gets one configuration, in which the compiler chooses all.
    """
    from solution.analysis.module_table import write_module_tables
    from solution.data.hlo.listing import show_records
    from solution.data.hlo.records import read_module_file
    from solution.data.hlo.writing import write_record

    records = read_module_file(file, collection)
    for table in show_records(file.name, records):
        output.print(table)
    if to is not None:
        paths = [write_record(record, to, split) for record in records]
        say(f"{to}: {len(paths)} graphs, such as {paths[0]}")
    if features_file is not None:
        rows = write_module_tables(records, features_file)
        say(f"{features_file}: {rows:,} rows.")


@app.command()
def explain(
    experiment: Annotated[str, typer.Argument(help="Trees or a linear model of the run.")],
    graph: Annotated[str, typer.Argument(help="Its name, or COLLECTION:NAME.")],
    run_folder: Annotated[Path, typer.Option("--run", help="A run folder.")] = RUNS / "sample",
    config: Annotated[
        int | None, typer.Option(min=0, help="Which one. Default: the one predicted slowest.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The run's store. Default: stores/NAME.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pictures.")] = None,
) -> None:
    """Say why a configuration is predicted slow, by a model that has not seen its graph."""
    from solution.analysis import explanation as words
    from solution.analysis import explanation_pictures as pictures
    from solution.experiments.base import find_experiment
    from solution.store.store import Store

    found = find_experiment(experiment)
    store = Store.open(data or STORES / run_folder.resolve().name)
    chosen = words.find_graph(store, found, graph)
    ranker, folder = words.load_ranker(Run.existing(run_folder), found, chosen)
    explained = words.explain(ranker, chosen, config)
    say(words.describe(explained))
    output.print(words.show_contributions(explained))
    output.print(words.show_importance(explained.features, explained.importance))
    place = out or Path("explanations") / found.name / chosen.name
    pictures.draw_contributions(explained, place / "contributions.png")
    others = words.labelled_graphs(store, chosen.collection.name)
    pictures.draw_components(chosen, others, place / "components.png")
    say(f"Model: {folder}. Pictures: {place}")


@app.command()
def tune(
    experiment: Annotated[str, typer.Argument(help="Name, or path of a Python file.")],
    data: Data = None,
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
    plan = make_plan(_open_store(data, [found]), "architecture", folds)
    folder = out or TUNING / found.name
    search = Search(found, plan, folder, sampler, seed, prune=prune)
    study = search.run(trials)
    output.print(show_study(study))
    draw_study(study, folder / "study.png")
    say(f"Best settings: {search.best_experiment(study)}. Picture: {folder / 'study.png'}")


def _open_store(data: Path | None, experiments: "Sequence[Experiment]" = ()) -> "Store":
    """The store that is meant; the sample's where none is given."""
    from solution.experiments.base import find_experiment
    from solution.training.opening import open_store

    serves = list(experiments) or [find_experiment("nothing_001")]
    place = data or SAMPLE
    return open_store(
        place, STORES / place.resolve().name, serves, limit=False, rebuild=True, workers=None
    )
