"""Commands for data and their features: check, inspect, prepare, data, features, module."""

import shutil
import tempfile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands import options
from solution.data.folders import (
    SAMPLE,
    choose_sample,
    describe_other_samples,
    find_files,
    find_left_out,
)
from solution.domain.collection import NAMES
from solution.domain.collection import collection as find_collection
from solution.runs.folder import find_stores
from solution.system.errors import InputError
from solution.system.files import check_writable, replace_file
from solution.system.names import check_ending, check_text
from solution.system.pictures import FORMATS, save_figure
from solution.system.terminal import output, say
from solution.system.wording import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from solution.programs.hlo.records import Record
    from solution.programs.program import Wanted

# Slow imports (torch, lightgbm, matplotlib, polars) are inside the commands that need them.

NPZ = ".npz"

app = typer.Typer()


@app.command()
def check(data: options.Data = SAMPLE) -> None:
    """Get every defect of your data or of a prepared store, and counts of what it holds."""
    from solution.analysis.data_check import check_files, find_equal_graphs, find_impossible
    from solution.analysis.graph_tables import show_scale, show_summaries
    from solution.store.store import Store, find_mixed_in_store, is_store
    from solution.system.progress import warn
    from submissions.writer import read_sample

    read_sample(choose_sample(data))
    if is_store(data):
        store = Store.open(data)
        summaries, defects = store.graphs, store.find_defects()
        notes = find_equal_graphs(summaries) + ([] if defects else find_impossible(store))
        defects = defects or find_mixed_in_store(store, summaries)
    else:
        summaries, defects, odd = check_files(find_files(data))
        notes = find_left_out(data) + find_equal_graphs(summaries) + odd
    output.print(show_summaries(summaries))
    if len(summaries) > 1:
        output.print(show_scale(summaries))
    for words in [*notes, *describe_other_samples(data)]:
        warn(words)
    if defects:
        raise InputError("\n".join([*defects, f"{count(len(defects), 'defect')} in {data}."]))
    say(f"All {len(summaries)} files are sound." if len(summaries) != 1 else "The file is sound.")


@app.command()
def inspect(
    file: Annotated[
        Path, typer.Argument(help="An npz file, a folder of them, or a prepared store.")
    ],
    collection: options.CollectionOption = None,
    name: Annotated[
        str | None, typer.Option("--graph", help="Name of one graph in the folder or store.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="A .png, .svg or .pdf file; for a folder, a folder. Default: NAME.png."),
    ] = None,
) -> None:
    """Get tables and a picture of one graph; for a folder, pictures of its data."""
    from solution.store.store import is_store

    if not file.exists():
        raise InputError(
            f"{file}: there is no such file or folder. Give an npz file, a folder or a store."
        )
    if name is not None and not file.is_dir():
        raise InputError(f"{file}: --graph is for a folder, this is a file. Leave it out.")
    if file.is_dir() and name is None and not is_store(file):
        if collection is not None:
            raise InputError("--collection is for one graph. Give --graph NAME, or leave it out.")
        if picture is not None and picture.suffix in FORMATS:
            raise InputError(f"{picture}: pictures of a folder go to a folder. Give its name.")
        from solution.analysis.first_look import draw_first_look

        pictures = picture or Path("pictures")
        check_writable(pictures)
        drawn = ", ".join(path.name for path in draw_first_look(file, pictures))
        say(f"{pictures}: {drawn}. One graph of it: --graph NAME.")
        return
    from solution.analysis.graph_lookup import look_up_graph, read_file
    from solution.analysis.graph_picture import make_figure
    from solution.analysis.graph_tables import show_graph

    check_ending(picture, *FORMATS)
    if picture is not None:
        options.check_output(picture)
    else:
        check_writable(Path())
    among = [collection] if collection else NAMES
    graph = look_up_graph(file, name, among) if file.is_dir() else read_file(file, collection)
    path = picture or Path(f"{graph.name}.png")
    for table in show_graph(graph):
        output.print(table)
    save_figure(make_figure(graph), path)
    say(f"Picture: {path}")


@app.command()
def prepare(
    data: options.Data = SAMPLE,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the store. Default: stores/NAME of the data.")
    ] = None,
    hops: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Keep nodes within this many edges of configurable ones. Default: all.",
        ),
    ] = None,
    workers: options.Preparers = None,
    replace: Annotated[bool, typer.Option("--replace", help="Prepare everything again.")] = False,
) -> None:
    """Get a prepared store: every graph repaired and encoded once, for faster runs.

    If it is stopped, the same command resumes. `run` prepares its data by itself; prepare it before
    if it is large, used by several runs, or not available later.
    """
    from solution.features.preparation import Preparation
    from solution.store.preparing import prepare_store
    from solution.store.store import is_store
    from solution.system.progress import warn
    from submissions.writer import read_sample

    sample = choose_sample(data)
    read_sample(sample)
    if is_store(data):
        raise InputError(f"{data}: is a prepared store already. Give what it was prepared from.")
    files = find_files(data)
    for words in [*find_left_out(data), *describe_other_samples(data)]:
        warn(words)
    store = prepare_store(
        files,
        out or find_stores() / options.name_of(data, limit=False),
        Preparation(hops),
        sample,
        workers=workers,
        replace=replace,
    )
    megabytes = store.size / 2**20
    say(f"{store.folder}: {count(len(store.graphs), 'graph')}, {megabytes:,.1f} MB.")


@app.command()
def data(
    folder: Annotated[Path, typer.Argument(help="Where to write the files.")] = Path("data"),
    collection: Annotated[
        str | None, typer.Option(help="Download only this collection, such as tile:xla.")
    ] = None,
    max_gigabytes: Annotated[
        float,
        typer.Option(min=0.001, callback=options.check_finite, help="Size limit of all files."),
    ] = 100.0,
) -> None:
    """Get the competition's data, checked, by the kaggle command. Resumes if stopped.

    Existing files are not overwritten. Exit codes: 0, or 2 with a message that says what Kaggle
    refused, what is wrong with the archive, or which files are defective.
    """
    from submissions.calls import read_wait_settings
    from submissions.download import download_all, download_collection
    from submissions.kaggle import Kaggle

    kaggle, max_bytes = Kaggle(read_wait_settings()), round(max_gigabytes * 1e9)
    if collection is None:
        files = download_all(kaggle, folder, max_bytes)
    else:
        files = download_collection(kaggle, folder, collection, max_bytes)
    say(f"{folder}: {count(files, 'file')}.")
    check(folder)


@app.command()
def features(
    collection: Annotated[
        str | None, typer.Argument(help="A collection, such as tile:xla. Default: list all tables.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the collection's table to this Parquet file.")
    ] = None,
    data: options.DataOption = None,
    word: Annotated[str, typer.Option("--find", help="List only columns with this word.")] = "",
) -> None:
    """Get the list of all features with units and reasons, or a collection's table as a file.

    The unit "log1p X" means log(1 + X).
    """
    from solution.analysis.feature_lists import show_features, write_collection
    from solution.features.table import KINDS

    chosen = find_collection(collection) if collection else None
    if out is None and data is not None:
        raise InputError("--data is for writing a table. Give --out FILE, or leave --data out.")
    if out is None:
        tables = [show_features(kind, word) for kind in ([chosen.kind] if chosen else KINDS)]
        found = [table for table in tables if table.row_count]
        if not found:
            raise InputError(f"No column has the word {word!r}. `fastslow features` lists all.")
        for table in found:
            output.print(table)
        return
    if word:
        raise InputError("--find is for the list, --out writes all columns. Give one of them.")
    if chosen is None:
        raise InputError("--out needs a collection, as in `fastslow features tile:xla --out FILE`.")
    check_ending(out, ".parquet")
    check_text(out)
    options.check_output(out)
    with options.open_given_store(data, collections=[chosen.name]) as store:
        rows = write_collection(store, chosen, out)
    say(f"{out}: {rows:,} rows.")


@app.command()
def module(
    file: Annotated[
        Path,
        typer.Argument(help="XLA program (protobuf, text, .py), a folder of them, or an npz file."),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="Write npz files into this folder. For an npz file: write its program to this "
            "file, as text (.hlo, .txt) or protobuf (.pb)."
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Collection of layout graphs. Default: layout:xla:random.")
    ] = None,
    split: Annotated[
        Literal["train", "valid", "test"] | None,
        typer.Option(help="Split of the npz files. Default: train if they have runtimes, or test."),
    ] = None,
    name: options.ModuleOption = "",
    function: options.FunctionOption = "",
) -> None:
    """Get a table of the programs in a file or folder, and npz files to rank.

    XLA dumps programs if XLA_FLAGS has --xla_dump_to=FOLDER --xla_dump_hlo_as_proto. A program
    without runs gets one configuration, in which the compiler chooses everything. An npz file is
    converted back to a program; everything that had to be guessed is listed.
    """
    if file.suffix == NPZ:
        others = (split, name or None, function or None)
        _lift_file(file, to, collection, is_plain=not any(others))
        return
    if split is not None and to is None:
        raise InputError("--split is for npz files. Give --to FOLDER, or leave --split out.")
    if to is not None:
        check_writable(to)
    records = _show_modules(file, collection, options.make_wanted(name, function))
    if to is not None:
        _write_graphs(records, to, split)


def _show_modules(file: Path, collection: str | None, wanted: "Wanted | None") -> "list[Record]":
    """Print the programs in a file or folder, with notes on them, and return their records."""
    from solution.analysis.graph_tables import show_records
    from solution.serving.reading import read_modules

    programs = read_modules(file, collection, wanted)
    records = [program.record for program in programs]
    for table in show_records(file.name, records):
        output.print(table)
    for program in programs:
        for note in program.notes:
            say(f"{program.record.graph.name}: {note}")
    return records


def _write_graphs(records: "Sequence[Record]", to: Path, split: str | None) -> None:
    """Write an npz file for each record, and say with which command to use them."""
    paths = [_write_beside(record, to, split) for record in records]
    say(f"{to}: {count(len(paths), 'graph')}, such as {paths[0]}")
    if records[0].graph.options is None:
        say(f"Rank its configurations with `fastslow rank {quote(str(paths[0]))}`.")
    else:
        say(f"Choose among its options with `fastslow choose {quote(str(paths[0]))} --replay`.")


def _lift_file(file: Path, to: Path | None, collection: str | None, *, is_plain: bool) -> None:
    """Convert the graph of an npz file to a program, and print what had to be guessed.

    Args:
        to: file of the program; None: only print the guesses.
        is_plain: False if an option was given that npz files do not allow, which is an InputError.
    """
    from solution.analysis.graph_lookup import read_file
    from solution.analysis.graph_tables import show_guesses
    from solution.collecting.lifting.lift import lift, write_program

    if not is_plain:
        raise InputError(
            f"{file}: --split, --module and --function are not for npz. Leave them out."
        )
    check_ending(to, ".hlo", ".txt", ".pb")
    options.check_outputs(file, to=to)
    graph = read_file(file, collection)
    lifted = lift(graph)
    if to is not None:
        write_program(lifted, graph, to)
    output.print(show_guesses(file.name, lifted))
    if to is not None:
        say(f"{to}: {count(graph.num_nodes, 'instruction')}.")


def _write_beside(record: "Record", folder: Path, split: str | None) -> Path:
    """Write a record's npz file; raise InputError if a different file of this name exists."""
    from solution.programs.hlo.records import write_record

    with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
        made = write_record(record, Path(scratch), split)
        path = folder / made.relative_to(scratch)
        if path.exists() and path.read_bytes() != made.read_bytes():
            raise InputError(
                f"{path}: exists already, for another program or other runs. Give another --to, or "
                "delete it."
            )
        with replace_file(path) as temporary:
            shutil.copyfile(made, temporary)
    return path
