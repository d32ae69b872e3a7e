"""Commands for trained ensembles: pack, rank, onnx."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from solution.collecting.target import CPU
from solution.commands import options
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import check_writable, write_bytes
from solution.system.names import check_ending
from solution.system.terminal import make_table, output, say
from solution.system.wording import count, how_to_install

if TYPE_CHECKING:
    from rich.table import Table

    from solution.programs.program import Wanted
    from solution.serving.bundle import Bundle
    from solution.serving.ranking import Ranked, Ranking
    from solution.serving.reading import Question

# Slow imports (torch, lightgbm, matplotlib, polars) are inside the commands that need them.

app = typer.Typer()

PIPE = Path("-")  # this path means standard output
OR_PIPED = "; - writes to standard output."  # end of the help texts of options that accept PIPE


def read_share(text: str) -> float:
    """Return a fraction: 0.02 for the text 2% or 0.02; raise BadParameter for other texts."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no share, expected such as 2% or 0.02") from error


Regret = Annotated[
    float, typer.Option(parser=read_share, help="Acceptable slowdown from the best.")
]
Confidence = Annotated[
    float, typer.Option(parser=read_share, help="Share of programs within --regret.")
]
Csv = Annotated[Path | None, typer.Option(help=f"Write all rows as CSV{OR_PIPED}")]
Json = Annotated[Path | None, typer.Option(help=f"Write all rows as JSON{OR_PIPED}")]
RankedFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="npz files, XLA programs (.pb, .hlo, ...), stores, folders."
    ),
]
Generated = Annotated[
    int | None,
    typer.Option(
        "--configs",
        min=1,
        help="How many different ones to generate at most. Default: 1000 if there is only one.",
    ),
]
RankTarget = Annotated[
    str | None,
    typer.Option(
        "--target", help="Hardware to rank for: tpu:v3, ... Default: what the models learned from."
    ),
]
Compilations = Annotated[
    int | None,
    typer.Option(
        "--compile",
        min=1,
        help="Ask the compiler of --target, a TPU, about this many layouts of each program. Needs "
        "the extra `tpu`.",
    ),
]
BUNDLED = (
    "Ranked by the default bundle: it learned from small programs timed on a CPU. For other "
    "hardware give a bundle of yours with --with; `fastslow pack` makes it of a run."
)


@app.command()
def pack(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.")],
    out: Annotated[Path, typer.Option(help="Where to write the bundle: a folder, or NAME.zip.")],
    recipe: options.RecipeOption = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Train again on all folds, and pack these models.")
    ] = False,
    distill: Annotated[
        bool,
        typer.Option("--distill", help="Train and pack a small model that imitates the ensemble."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Store for --refit or --distill. Default: the one of the run."),
    ] = None,
) -> None:
    """Get one bundle to rank with: a run's models, their scores and a model card.

    By default it holds the models of all folds and seeds, whose scores are averaged.
    """
    from ensembles.recipe import choose_recipe
    from solution.serving.packing import check_bundle_place
    from solution.serving.packing import pack as make

    if refit and distill:
        raise InputError("Give --refit or --distill, one of them: a bundle holds one or the other.")
    if data is not None and not (refit or distill):
        raise InputError("--data is for training again. Give --refit or --distill as well.")
    run = Run.existing(run_folder)
    check_bundle_place(out)  # check before the slow training
    chosen = choose_recipe(run, recipe)
    if not (refit or distill):
        made = make(run, chosen, out)
    else:
        from solution.store.store import Store
        from solution.training import refitting
        from solution.training.distilling import RECIPE
        from solution.training.opening import open_run_store

        store = Store.open(data) if data else open_run_store(run)
        if distill:
            refitting.distill(run, chosen, store)
            made = make(run, RECIPE, out, refitted=True, teacher=chosen)
        else:
            refitting.refit(run, chosen, store)
            made = make(run, chosen, out, refitted=True)
    say(f"Bundle: {made}. Rank with it: fastslow rank FILE --with {quote(str(made))}")


@app.command()
def rank(
    files: RankedFiles,
    bundle: Annotated[
        Path | None,
        typer.Option("--with", help="Folder or zip of a bundle. Default: the bundled one."),
    ] = None,
    run_folder: Annotated[Path | None, typer.Option("--run", help="Run whose models rank.")] = None,
    recipe: options.RecipeOption = None,
    collection: options.CollectionOption = None,
    configs: Generated = None,
    top: Annotated[int, typer.Option(min=1, help="Number of rows shown.")] = 10,
    regret: Regret = "2%",  # type: ignore[assignment]  # read_share turns the text into a number
    confidence: Confidence = "90%",  # type: ignore[assignment]
    csv: Csv = None,
    json: Json = None,
    module: options.ModuleOption = "",
    function: options.FunctionOption = "",
    target: RankTarget = None,
    compilations: Compilations = None,
) -> None:
    """Get a program's configurations ranked, fastest first, and how many of them to measure."""
    from solution.commands.compiling import find_doubt, open_compiler, rank_first
    from solution.domain.collection import collection as find_collection

    if collection is not None:
        find_collection(collection)
    csv_file, json_file = _check_files(files, csv, json)
    inputs = (file for file in files if not file.is_dir())
    options.check_outputs(*inputs, bundle, run_folder, csv=csv_file, json=json_file)
    wanted = options.make_wanted(module, function)
    with _writing(csv, json) as rankings, open_compiler(target, compilations) as follow:
        opened = open_bundle(bundle, run_folder, recipe, target or CPU)
        doubt = find_doubt(opened, target)
        is_alone = len(files) == 1
        questions = chain.from_iterable(
            _ask(file, collection, configs, wanted, is_alone=is_alone) for file in files
        )
        for question, (first, whose) in _skip_unranked(
            questions, lambda asked: rank_first(opened, asked, target, doubt, regret, confidence)
        ):
            ranking, told = follow(first, whose, question)
            output.print(_tabulate(ranking, top, made=question.made))
            for words in (ranking.sentence(), *told, *question.notes):
                say(words)
            rankings += [(question.file, ranking)] if csv or json else []


def _skip_unranked(
    questions: "Iterable[Question]", rank_it: "Callable[[Question], tuple[Ranking, str]]"
) -> "Iterator[tuple[Question, tuple[Ranking, str]]]":
    """Yield each graph with what `rank_it` returns for it. Graphs of collections that no model
    ranks are left out with a warning. Raises InputError if no graph is left."""
    from solution.serving.bundle import NoModelError
    from solution.system.progress import warn

    left_out: Counter[str] = Counter()
    refused: NoModelError | None = None
    is_empty = True
    for question in questions:
        try:
            ranked = rank_it(question)
        except NoModelError as error:
            left_out[question.graph.collection.name] += 1
            refused = error
            continue
        is_empty = False
        yield question, ranked
    if is_empty:
        nothing = "Nothing may be configured in any of the files: nothing was ranked."
        raise refused or InputError(nothing)
    if left_out:
        counted = [f"{name} ({number:,})" for name, number in sorted(left_out.items())]
        graphs = count(left_out.total(), "graph")
        warn(f"{graphs} left out, because no model ranks the collection: {', '.join(counted)}.")


def _check_files(
    files: list[Path], csv: Path | None, json: Path | None
) -> tuple[Path | None, Path | None]:
    """Return `csv` and `json`, with None for standard output. Raises InputError for a wrong ending,
    if both are standard output, or if one of the files to rank does not exist."""
    if csv == json == PIPE:
        raise InputError("Give - to --csv or --json, not to both: there is one standard output.")
    if PIPE in (csv, json) and sys.stdout is None:
        raise InputError("-: standard output is closed. Give the name of a file.")
    found = None if csv == PIPE else csv, None if json == PIPE else json
    for path, ending in zip(found, (".csv", ".json"), strict=True):
        check_ending(path, ending)
    for file in files:
        if not file.exists():
            raise InputError(f"{file}: there is no such file or folder. Give what is to be ranked.")
    return found


def _ask(
    file: Path,
    collection: str | None,
    configs: int | None,
    wanted: "Wanted | None",
    *,
    is_alone: bool,
) -> Iterator["Question"]:
    """Yield the graphs in `file` whose configurations are to be ranked. A warning is printed if a
    graph has layouts that no tensor can have, or if nothing in the file may be configured; the
    latter is an error if the file `is_alone`."""
    from solution.features.candidates import NothingToChooseError
    from solution.serving.possible import describe_impossible
    from solution.serving.reading import read_questions
    from solution.system.progress import warn

    try:
        for question in read_questions(file, collection, configs, wanted):
            if words := describe_impossible(question.graph):
                warn(f"{question.file}: {words}")
            yield question
    except NothingToChooseError as error:
        if is_alone:
            raise
        warn(f"{error} The file is left out.")


def _write_to(stdout: TextIO, text: str) -> None:
    """Write to standard output; add its name to an OSError, because the system's error has none."""
    try:
        stdout.write(text)
        stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        raise


@contextmanager
def _writing(csv: Path | None, json: Path | None) -> Iterator["list[Ranked]"]:
    """Yield a list, and write the rankings that the caller adds to it, even after an error. If one
    file is standard output, everything else that is printed goes to standard error."""
    from solution.serving.ranking import format_csv, format_json

    rankings: list[Ranked] = []
    stdout = sys.stdout
    piped = redirect_stdout(sys.stderr) if PIPE in (csv, json) else nullcontext()
    with piped:
        try:
            yield rankings
        finally:
            for make, path in ((format_csv, csv), (format_json, json)):
                if path == PIPE and rankings:
                    _write_to(stdout, make(rankings))
                elif path is not None and rankings:
                    write_bytes(make(rankings).encode(), path)
                    say(f"Complete ranking: {path}")


@app.command()
def onnx(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write the files.")],
    bundle: Annotated[
        Path | None, typer.Option("--with", help="A distilled bundle. Default: the built-in one.")
    ] = None,
) -> None:
    """Get the students of a distilled bundle as ONNX files, which run without Python.

    Needs the extra `onnx`.
    """
    if find_spec("onnx") is None:
        raise InputError(f"onnx is not installed. {how_to_install('onnx')}.")
    from solution.serving.bundle import DEFAULT, load_bundle
    from solution.serving.onnx_export import export

    check_writable(out)
    for path in export(load_bundle(bundle or DEFAULT), out):
        say(f"{path}: {path.stat().st_size:,} bytes")


def open_bundle(
    bundle: Path | None, run_folder: Path | None, recipe: str | None, target: str = CPU
) -> "Bundle":
    """Return the bundle in the file or folder `bundle`, or the run merged by `recipe` as a bundle.
    Without both, return the package's bundle and, if the target is the CPU, print that this bundle
    ranks. Raises InputError if both are given, or a recipe without a run."""
    from solution.serving.bundle import load_bundle, load_run
    from solution.system.progress import warn

    if bundle is not None and run_folder is not None:
        raise InputError("Give --with BUNDLE or --run RUN, one of them.")
    if recipe is not None and run_folder is None:
        raise InputError("--recipe says how a run's members are merged: give --run RUN as well.")
    if run_folder is not None:
        return load_run(run_folder, recipe)
    if bundle is not None:
        opened = load_bundle(bundle)
        if opened.caveat:
            warn(opened.caveat)
        return opened
    if target == CPU:
        say(BUNDLED)
    return load_bundle()


def _tabulate(ranking: "Ranking", top: int, *, made: bool) -> "Table":
    from rich.text import Text

    graph = ranking.graph
    origin = ", generated here" if made else ""
    title = (
        f"{graph.collection.name} {graph.name}: {count(graph.num_configs, 'configuration')}{origin}"
    )
    caption = "Spread: standard deviation of the models' ranks."
    if ranking.estimates is not None:
        caption = "Estimated by the compiler, never timed; - where it gave no estimate."
    is_asked = ranking.estimates is not None
    numbers = ("Rank", "Configuration", "Score", "Estimated ms" if is_asked else "Spread")
    table = make_table(Text(title), caption, numbers=numbers, texts=("Description",))
    for row in ranking.to_frame(top).iter_rows(named=True):
        last = row["estimate" if is_asked else "spread"]
        shown = "-" if last is None else f"{last / 1e6:.4g}" if is_asked else f"{last:.1f}"
        table.add_row(
            str(row["rank"]), str(row["config"]), f"{row['score']:.4f}", shown,
            Text(row["configuration"]),
        )  # fmt: skip
    return table
