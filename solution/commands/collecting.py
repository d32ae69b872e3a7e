"""Commands that measure your own programs: collect layout, tile, options, report."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands.options import (
    Address,
    ArgumentFile,
    ExecutorOption,
    FunctionOption,
    Megabytes,
    ModuleOption,
    Seconds,
    Seed,
    check_finite,
    make_executor,
    make_wanted,
)
from solution.system.errors import InputError
from solution.system.terminal import output, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from solution.collecting.collect import Settings
    from solution.collecting.program import Program
    from solution.collecting.records import Place
    from solution.collecting.session import Finished
    from solution.collecting.spaces import CompilerSpace
    from solution.training.executors.base import Executor

# Heavy imports (polars, scipy) wait inside the commands that need them.

app = typer.Typer(name="collect", help="Compile and time your own programs in many configurations.")

Programs = Annotated[
    list[Path],
    typer.Argument(help="Python with a jax function, StableHLO or HLO text, or HLO protobuf."),
]
Out = Annotated[Path, typer.Option(help="Where npz, tuning records and logs go.")]
Split = Annotated[Literal["train", "valid"], typer.Option(help="Of the npz files.")]
Configs = Annotated[int, typer.Option(min=8, help="Configurations of a program.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.1, callback=check_finite, help="For all programs. Default: three for each file."
    ),
]
Flat = Annotated[bool, typer.Option("--keep-flat", help="Also write graphs whose order is chance.")]
Replace = Annotated[bool, typer.Option("--replace", help="Start afresh.")]


@app.command()
def layout(
    programs: Programs,
    out: Out = Path("collected"),
    collection: Annotated[
        str, typer.Option(help="Where they belong; the last word is the search.")
    ] = "layout:xla:random",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: Megabytes = 4096,
    seconds: Seconds = 60,
    seed: Seed = 0,
    keep_flat: Flat = False,
    arguments: ArgumentFile = None,
    replace: Replace = False,
    executor: ExecutorOption = "local",
    address: Address = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Time programs in many layouts of their convolutions, dots and reshapes.

    The search is random, or goes from the compiler's own choice to the fastest (default). Stopped,
    even killed, the same command goes on where it was.
    """
    from solution.collecting.children import Limits
    from solution.collecting.collect import Settings
    from solution.collecting.records import Place
    from solution.collecting.spaces import LayoutSpace
    from solution.domain.collection import collection as find_collection

    found = find_collection(collection)
    if found.kind != "layout":
        raise InputError(f"{collection} holds tiles: collect them with `fastslow collect tile`.")
    settings = Settings(
        configs=configs, seed=seed, limits=Limits(seconds, megabytes), keep_flat=keep_flat,
        replace=replace, wanted=make_wanted(module, function), arguments=arguments,
    )  # fmt: skip
    _collect(
        programs, partial(LayoutSpace, search=found.name.split(":")[-1]),
        Place(out, collection, split), settings, minutes, make_executor(executor, address, None),
    )  # fmt: skip


@app.command()
def tile(
    programs: Programs,
    out: Out = Path("collected"),
    split: Split = "train",
    configs: Configs = 72,
    minutes: Minutes = None,
    megabytes: Megabytes = 2048,
    seconds: Seconds = 30,
    seed: Seed = 0,
    keep_flat: Flat = False,
    arguments: ArgumentFile = None,
    replace: Replace = False,
    executor: ExecutorOption = "local",
    address: Address = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Time matrix products in many tiles of XLA's own loops, on a CPU."""
    from solution.collecting.children import Limits
    from solution.collecting.collect import Settings
    from solution.collecting.records import Place
    from solution.collecting.tiles import TileSpace

    settings = Settings(
        configs=configs, seed=seed, limits=Limits(seconds, megabytes), keep_flat=keep_flat,
        replace=replace, wanted=make_wanted(module, function), arguments=arguments,
    )  # fmt: skip
    _collect(
        programs, TileSpace, Place(out, "tile:xla", split), settings, minutes,
        make_executor(executor, address, None),
    )  # fmt: skip


@app.command()
def options(
    programs: Programs,
    out: Out = Path("collected-options"),
    source: Annotated[Literal["xla", "nlp"], typer.Option(help="Where they belong.")] = "xla",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: Megabytes = 4096,
    seconds: Seconds = 60,
    seed: Seed = 0,
    keep_flat: Flat = False,
    arguments: ArgumentFile = None,
    replace: Replace = False,
    executor: ExecutorOption = "local",
    address: Address = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Time programs with compile options that matter on a CPU.

    Their npz files have an array more than the competition's, so they lie in a folder of their own.
    """
    from solution.collecting.children import Limits
    from solution.collecting.collect import Settings
    from solution.collecting.options import OptionSpace
    from solution.collecting.records import Place

    settings = Settings(
        configs=configs, seed=seed, limits=Limits(seconds, megabytes), keep_flat=keep_flat,
        replace=replace, wanted=make_wanted(module, function), arguments=arguments,
    )  # fmt: skip
    _collect(
        programs, OptionSpace, Place(out, f"layout:{source}:random", split), settings, minutes,
        make_executor(executor, address, None),
    )  # fmt: skip


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="What was given as --out.")] = Path("collected"),
    picture: Annotated[
        Path | None, typer.Option(help=".png, .svg or .pdf. Default: report.png in it.")
    ] = None,
) -> None:
    """Show what a folder of collections holds, how noisy it is, and a picture of both."""
    from solution.collecting.report import draw_collections, list_finished, read_collections
    from solution.collecting.tables import show_finished
    from solution.system.names import check_ending
    from solution.system.pictures import FORMATS, save_figure

    check_ending(picture, *FORMATS)
    collected = read_collections(folder)
    for name, finished in list_finished(collected).items():
        output.print(show_finished(name, finished))
    path = picture or folder / "report.png"
    save_figure(draw_collections(collected), path)
    say(f"Picture: {path}")


def _collect(
    programs: list[Path],
    make_space: "Callable[[Program], CompilerSpace]",
    place: "Place",
    settings: "Settings",
    minutes: float | None,
    executor: "Executor",
) -> None:
    from solution.collecting.session import collect_programs
    from solution.collecting.tables import show_finished

    minutes = minutes or 3 * len(programs)
    if executor.is_away and settings.arguments is not None:
        raise InputError(
            f"{settings.arguments}: --arguments are for a program that is timed on this machine. "
            "Leave out --executor, or --arguments."
        )
    if executor.is_away:
        finished = _collect_away(executor, programs, make_space, place, settings, minutes)
    else:
        finished = collect_programs(programs, make_space, place, settings, minutes)
    output.print(show_finished(place.collection, finished))
    _say_cut(finished)
    for one in finished:
        if one.state.get("note"):
            say(one.state["note"])
    _complain(finished)
    _say_outcome(place.folder, finished)


def _collect_away(
    nodes: "Executor",
    files: list[Path],
    make_space: "Callable[[Program], CompilerSpace]",
    place: "Place",
    settings: "Settings",
    minutes: float,
) -> "list[Finished]":
    """A file at a time on each core of a cluster; what comes back is written here."""
    from solution.collecting.away import Collector
    from solution.collecting.program import name_program
    from solution.collecting.records import remove_graph
    from solution.collecting.session import check_names
    from solution.system.files import locked, make_folder
    from solution.system.parcel import add_files
    from solution.system.progress import bars
    from solution.training.executors.base import Needs, Task
    from solution.training.watch import ProgressBars

    check_names([name_program(path) for path in files])
    make_folder(place.folder)
    found: dict[int, list[Finished]] = {}

    def keep(number: int, result: "tuple[list[Finished], bytes]") -> None:
        found[number] = result[0]
        check_names([one.name for finished in found.values() for one in finished])
        for one in result[0]:  # of one without a graph, an earlier graph is none of what is kept
            if one.state and "npz" not in one.state:
                remove_graph(place, one.name)
        add_files(result[1], place.folder)

    needs = Needs(bytes=settings.limits.megabytes << 20)
    with locked(place.folder, "Wait for it, or choose another --out."), nodes.open(), bars() as bar:
        seconds = 60 * minutes * min(nodes.slots, len(files)) / len(files)
        tasks = [
            Task(path.stem, (path.name, _read(path), _pack_log(place, path), seconds), needs)
            for path in files
        ]
        watch = ProgressBars(bar, len(tasks), "Collecting")
        nodes.run(Collector(make_space, place, settings), tasks, watch, keep)
    return [one for number in sorted(found) for one in found[number]]


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give a program's file.")
    return path.read_bytes()


def _pack_log(place: "Place", path: Path) -> bytes | None:
    """What an earlier collection of the program wrote, so that it is gone on with."""
    from solution.collecting.program import name_program
    from solution.system.parcel import pack_folder

    log = place.find("log", name_program(path))
    return pack_folder(log) if log.is_dir() else None


def _say_cut(finished: "list[Finished]") -> None:
    """Which could have had more, also where another one failed."""
    cut = [one.name for one in finished if one.state.get("cut")]
    if cut:
        say(
            f"{', '.join(cut)}: the time was over before there were as many configurations as "
            "asked for. The same command with more --minutes goes on."
        )


def _say_outcome(folder: Path, finished: "list[Finished]") -> None:
    """What to do with what was written; exit with 1 where nothing was."""
    from solution.collecting.tables import describe_failures

    if any("npz" in one.state for one in finished):
        say(f"{folder}: check it with `fastslow check {quote(str(folder))}`.")
        return
    reason = describe_failures(finished)
    if any(one.state.get("left_out") == "flat" for one in finished):
        reason = "Where all configurations take as long, --keep-flat writes it all the same."
    say(f"{folder}: no graph was written. {reason}".rstrip())
    raise typer.Exit(1)


def _complain(finished: "list[Finished]") -> None:
    defects = [one.defect for one in finished if one.defect]
    if defects:
        raise InputError("\n".join(defects))
