"""The commands. The one file that may look at everything; each command is a few lines over it."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from solution.commands import Workers
from solution.commands import app as study_commands
from solution.data.folders import SAMPLE, check_exists
from solution.runs.folder import RUNS, STORES, Run
from solution.system.errors import InputError
from solution.system.terminal import output, say
from solution.training.folds import Scheme
from submissions.commands import RECIPE
from submissions.commands import app as kaggle_commands
from submissions.kernels.commands import app as kernel_commands

# Heavy imports (torch, lightgbm, matplotlib) wait inside the commands that need them.

app = typer.Typer(
    help="Rank the compiler configurations of a tensor program from fastest to slowest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(study_commands)  # train, features, module, explain, tune
app.add_typer(kaggle_commands)  # submit, scores, leaderboard, doctor
app.add_typer(kernel_commands, name="kernels")

EXPERIMENTS = (
    "nothing_001",
    "layout_gnn_001",
    "layout_lightgbm_001",
    "tile_gnn_001",
    "tile_lightgbm_001",
)
EXIT_BAD_INPUT = 2

Data = Annotated[
    Path,
    typer.Argument(
        callback=check_exists, help="Folder with the npz files, in any of their shapes."
    ),
]
Preparers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at once. Default: one per core.")
]
RunOption = Annotated[Path, typer.Option("--run", help="A run folder.")]
RecipeOption = Annotated[str, typer.Option(help="Name, or path of a TOML file.")]


@app.command()
def check(data: Data = SAMPLE) -> None:
    """Validate every file, of the data or of a prepared store, and count what is there."""
    from solution.analysis.graph_tables import show_summaries
    from solution.data.folders import find_files
    from solution.data.scan import scan
    from solution.store.store import Store, is_store

    if is_store(data):
        store = Store.open(data)
        summaries, defects = store.graphs, store.find_defects()
    else:
        summaries, defects = scan(find_files(data))
    output.print(show_summaries(summaries))
    if defects:
        raise InputError("\n".join([*defects, f"{len(defects)} defect(s) in {data}."]))
    say(f"All {len(summaries)} files are sound.")


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="One npz file.")],
    collection: Annotated[str | None, typer.Option(help="Where the path does not say it.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Default: NAME.png here.")] = None,
) -> None:
    """Show one graph as tables and save a picture of it."""
    from solution.analysis.graph_picture import draw_graph
    from solution.analysis.graph_tables import show_graph
    from solution.data.folders import identify_file
    from solution.data.npz import read_graph

    found = identify_file(file, collection)
    graph = read_graph(found.path, found.collection)
    for table in show_graph(graph):
        output.print(table)
    path = picture or Path(f"{graph.name}.png")
    draw_graph(graph, path)
    say(f"Picture: {path}")


@app.command()
def prepare(
    data: Data = SAMPLE,
    out: Annotated[
        Path | None, typer.Option(help="The store. Default: stores/NAME of the data folder.")
    ] = None,
    hops: Annotated[
        int, typer.Option(min=1, help="Kept around the configurable nodes of layout graphs.")
    ] = 1,
    whole: Annotated[bool, typer.Option("--whole", help="Keep every node.")] = False,
    workers: Preparers = None,
    replace: Annotated[bool, typer.Option("--replace", help="Prepare everything again.")] = False,
) -> None:
    """Repair, prune and encode every graph once, so that runs read only what they need.

    Preparing again goes on where it was stopped. `run` does it by itself; do it before where the
    data is large, used by several runs, or will not be there later.
    """
    from solution.data.folders import find_files, find_sample_submission
    from solution.store.preparation import Preparation
    from solution.store.preparing import prepare_store

    store = prepare_store(
        find_files(data),
        out or STORES / data.resolve().name,
        Preparation(None if whole else hops),
        find_sample_submission(data),
        workers=workers,
        replace=replace,
    )
    megabytes = store.size / 2**20
    say(f"{store.folder}: {len(store.graphs)} graphs, {megabytes:,.1f} MB.")


@app.command()
def run(
    data: Data = SAMPLE,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="Default: runs/NAME of the data folder.")
    ] = None,
    experiment: Annotated[
        list[str], typer.Option(help="Name, or path of a Python file; may be repeated.")
    ] = list(EXPERIMENTS),  # noqa: B006 - typer copies it
    recipe: RecipeOption = RECIPE,
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
    place = store_folder or STORES / _name(data, limit=limit)
    store = open_store(
        data, place, experiments, limit=limit, rebuild=store_folder is None, workers=workers
    )
    folder = run_folder or RUNS / _name(data, limit=limit)
    with open_experiments(
        experiments, store, folder, scheme=scheme, folds=folds, limit=limit, replace=replace
    ) as (plan, opened):
        run_experiments(experiments, plan, opened, workers)
        _finish(opened, recipe)


@app.command()
def ensemble(
    recipe: Annotated[str, typer.Argument(help="Name, or path of a TOML file.")] = RECIPE,
    run_folder: RunOption = RUNS / "sample",
    search: Annotated[
        bool, typer.Option("--search", help="Propose a recipe instead, and write it to --out.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where --search writes.")] = Path("proposed.toml"),
    fit: Annotated[
        list[str], typer.Option(help="With --search: how weights are fitted; may be repeated.")
    ] = [],  # noqa: B006 - typer copies it
) -> None:
    """Merge the predictions of a run by a recipe and write its submission."""
    if not search:
        _finish(Run.existing(run_folder), recipe)
        return
    from ensembles.tables import show_search

    output.print(show_search(Run.existing(run_folder), fit, out))
    say(f"Recipe: {out}. Merge by it with `fastslow ensemble {out}`.")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="An experiment of the run, or a recipe.")],
    b: Annotated[str, typer.Argument(help="What it is compared with.")],
    run_folder: RunOption = RUNS / "sample",
) -> None:
    """Say how much better A is than B, out of fold, and how sure that is."""
    from ensembles.tables import show_comparison

    output.print(show_comparison(Run.existing(run_folder), a, b))


@app.command()
def report(
    run_folder: RunOption = RUNS / "sample",
    recipe: RecipeOption = RECIPE,
    out: Annotated[Path | None, typer.Option(help="Default: report.html in the run.")] = None,
) -> None:
    """Write what a run reached as one HTML page that opens anywhere, offline."""
    from ensembles.recipe import find_recipe
    from submissions.page.build import write_page

    say(f"Report: {write_page(Run.existing(run_folder), find_recipe(recipe), out)}")


@app.command()
def verify(
    submission: Annotated[Path, typer.Argument(help="A submission CSV.")],
    run_folder: Annotated[Path, typer.Option("--run", help="Its run folder.")] = RUNS / "sample",
) -> None:
    """Check a submission file as the competition would."""
    from solution.domain import predictions
    from submissions.checker import check_submission
    from submissions.writer import expect

    opened = Run.existing(run_folder)
    expected = expect(predictions.read(opened.graphs), opened.sample_submission())
    rows = check_submission(submission, expected)
    say(f"{submission}: {rows} rows, sound.")


@app.command()
def data(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")] = Path("data"),
    collection: Annotated[str | None, typer.Option(help="Only one, as layout:xla:random.")] = None,
    max_gigabytes: Annotated[float, typer.Option(min=0.001, help="Of all files.")] = 100.0,
) -> None:
    """Download the competition's data with the kaggle CLI and check it. Goes on where it was.

    Nothing that is there is overwritten. Exit codes: 0, or 2 with a message: what Kaggle refused,
    what is wrong with the archive, or which files are defective.
    """
    from submissions.download import download_all, download_collection
    from submissions.kaggle import Kaggle
    from submissions.settings import read_settings

    kaggle, max_bytes = Kaggle(read_settings()), round(max_gigabytes * 1e9)
    if collection is None:
        count = download_all(kaggle, folder, max_bytes)
    else:
        count = download_collection(kaggle, folder, collection, max_bytes)
    say(f"{folder}: {count} files are there.")
    check(folder)


def _name(data: Path, *, limit: bool) -> str:
    """What a run or a store of the data is called."""
    return data.resolve().name + ("-limit" if limit else "")


def _finish(run: Run, recipe_name: str) -> None:
    """Merge, write the submission and show the table."""
    from ensembles.recipe import find_recipe
    from submissions.build import build_submission
    from submissions.report import tabulate

    built = build_submission(run, find_recipe(recipe_name))
    output.print(tabulate(built.lines))
    say(built.written.describe())


def main() -> None:
    """Run the command line; bad input is one message and exit code 2."""
    try:
        app()
    except (InputError, OSError) as error:  # OSError: no space, no permission, a folder in the way
        Console(stderr=True, soft_wrap=True).print(f"Error: {error}", style="red", markup=False)
        sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
