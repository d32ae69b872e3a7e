"""Commands that measure your own programs: collect layout, tile, options, report."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands.options import (
    ArgumentFile,
    ClusterAddress,
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
    from solution.collecting.program_space import ProgramSpace
    from solution.collecting.records import Place
    from solution.collecting.session import Finished
    from solution.collecting.target import Target
    from solution.programs.child import Limits
    from solution.programs.program import Program
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
        min=0.1,
        callback=check_finite,
        help="For all programs. Default: three for each file; for a TPU 20.",
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help="cpu: timed here. tpu:v3, tpu:v5e, ...: estimated by the TPU's compiler, no TPU "
        "needed; with the extra `tpu`.",
    ),
]
# A TPU's compiler needs more time and memory, so the defaults depend on the target.
Most = Annotated[
    float | None,
    typer.Option(min=1, callback=check_finite, help="That a compilation may take. For a TPU: 600."),
]
MostMegabytes = Annotated[
    int | None, typer.Option(min=256, help="That a compilation may take. For a TPU: 8192.")
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
    megabytes: MostMegabytes = None,
    seconds: Most = None,
    seed: Seed = 0,
    keep_flat: Flat = False,
    arguments: ArgumentFile = None,
    replace: Replace = False,
    target: TargetOption = "cpu",
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Time programs in many layouts of their convolutions, dots and reshapes, or estimate them.

    The search is random, or goes from the compiler's own choice to the fastest (default). Stopped,
    even killed, the same command goes on where it was.
    """
    from solution.collecting.collect import Settings
    from solution.collecting.program_space import LAYOUTS
    from solution.collecting.records import Place
    from solution.domain.collection import collection as find_collection

    found = find_collection(collection)
    if found.kind != "layout":
        raise InputError(f"{collection} holds tiles: collect them with `fastslow collect tile`.")
    machine = _find_target(target, LAYOUTS)
    settings = Settings(
        configs=configs, seed=seed, limits=_find_limits(machine, seconds, megabytes),
        keep_flat=keep_flat, replace=replace, wanted=make_wanted(module, function),
        arguments=arguments, target=machine,
    )  # fmt: skip
    make_space = partial(
        machine.make_space, kind=LAYOUTS, varies_fastest=not found.name.endswith(":random")
    )
    _collect(
        programs, make_space, Place(out, collection, split), settings, minutes,
        make_executor(executor, address, None),
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
    target: TargetOption = "cpu",
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Time matrix products in many tiles of XLA's own loops, on a CPU."""
    from solution.collecting.collect import Settings
    from solution.collecting.program_space import TILES
    from solution.collecting.records import Place
    from solution.programs.child import Limits

    machine = _find_target(target, TILES)
    settings = Settings(
        configs=configs, seed=seed, limits=Limits(seconds, megabytes), keep_flat=keep_flat,
        replace=replace, wanted=make_wanted(module, function), arguments=arguments, target=machine,
    )  # fmt: skip
    _collect(
        programs, partial(machine.make_space, kind=TILES), Place(out, "tile:xla", split), settings,
        minutes, make_executor(executor, address, None),
    )  # fmt: skip


@app.command()
def options(
    programs: Programs,
    out: Out = Path("collected-options"),
    source: Annotated[Literal["xla", "nlp"], typer.Option(help="Where they belong.")] = "xla",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: MostMegabytes = None,
    seconds: Most = None,
    seed: Seed = 0,
    keep_flat: Flat = False,
    arguments: ArgumentFile = None,
    replace: Replace = False,
    target: TargetOption = "cpu",
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Time programs with compile options that matter on a CPU, or estimate them for a TPU.

    Their npz files have an array more than the competition's, so they lie in a folder of their own.
    """
    from solution.collecting.collect import Settings
    from solution.collecting.program_space import OPTIONS
    from solution.collecting.records import Place

    machine = _find_target(target, OPTIONS)
    settings = Settings(
        configs=configs, seed=seed, limits=_find_limits(machine, seconds, megabytes),
        keep_flat=keep_flat, replace=replace, wanted=make_wanted(module, function),
        arguments=arguments, target=machine,
    )  # fmt: skip
    _collect(
        programs, partial(machine.make_space, kind=OPTIONS),
        Place(out, f"layout:{source}:random", split), settings, minutes,
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
    from solution.collecting.report import (
        draw_collections,
        list_finished,
        read_collections,
        show_finished,
    )
    from solution.system.names import check_ending
    from solution.system.pictures import FORMATS, save_figure

    check_ending(picture, *FORMATS)
    collected = read_collections(folder)
    for name, finished in list_finished(collected).items():
        output.print(show_finished(name, finished))
    path = picture or folder / "report.png"
    save_figure(draw_collections(collected), path)
    say(f"Picture: {path}")


def _find_target(text: str, kind: str) -> "Target":
    """Return the target; raise InputError if there is none of this name, or not on this machine,
    or without this kind of configurations."""
    from solution.collecting.target import parse_target

    target = parse_target(text)
    target.check(kind)
    return target


def _find_limits(target: "Target", seconds: float | None, megabytes: int | None) -> "Limits":
    """Return the limits of a compilation: the given ones, or the target's defaults."""
    from solution.programs.child import Limits

    return Limits(seconds or target.seconds, megabytes or target.megabytes)


def _collect(
    programs: list[Path],
    make_space: "Callable[[Program], ProgramSpace]",
    place: "Place",
    settings: "Settings",
    minutes: float | None,
    executor: "Executor",
) -> None:
    from solution.collecting.report import show_finished
    from solution.collecting.session import collect_programs

    minutes = minutes or settings.target.minutes * len(programs)
    if executor.is_away and settings.arguments is not None:
        raise InputError(
            f"{settings.arguments}: --arguments are for a program that is timed on this machine. "
            "Leave out --executor, or --arguments."
        )
    if executor.is_away:
        finished = _collect_away(executor, programs, make_space, place, settings, minutes)
    else:
        finished = collect_programs(programs, make_space, place, settings, minutes)
    output.print(show_finished(place.collection, finished, settings.target.name))
    _say_cut(finished)
    for one in finished:
        if one.state.get("note"):
            say(one.state["note"])
    _complain(finished)
    _say_outcome(place.folder, finished)


def _collect_away(
    nodes: "Executor",
    files: list[Path],
    make_space: "Callable[[Program], ProgramSpace]",
    place: "Place",
    settings: "Settings",
    minutes: float,
) -> "list[Finished]":
    """Collect files on a cluster, one per core; write the returned files on this machine."""
    from solution.collecting.records import remove_graph
    from solution.collecting.session import Collector, check_names
    from solution.programs.program import name_program
    from solution.system.files import locked, make_folder
    from solution.system.progress import bars
    from solution.system.zips import add_files
    from solution.training.executors.base import Needs, Task
    from solution.training.watch import ProgressBars

    check_names([name_program(path) for path in files])
    make_folder(place.folder)
    found: dict[int, list[Finished]] = {}

    def keep(number: int, result: "tuple[list[Finished], bytes]") -> None:
        found[number] = result[0]
        check_names([one.name for finished in found.values() for one in finished])
        for one in result[0]:  # if a program has no graph now, an older graph of it must go
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
    """Pack the journal of an earlier collection of the program, so that it is resumed."""
    from solution.programs.program import name_program
    from solution.system.zips import pack_folder

    log = place.find("log", name_program(path))
    return pack_folder(log) if log.is_dir() else None


def _say_cut(finished: "list[Finished]") -> None:
    """Name the programs whose time was too short, even if another program failed."""
    cut = [one.name for one in finished if one.state.get("cut")]
    if cut:
        say(
            f"{', '.join(cut)}: the time was over before there were as many configurations as "
            "asked for. The same command with more --minutes goes on."
        )


def _say_outcome(folder: Path, finished: "list[Finished]") -> None:
    """Say how to use what was written; exit with 1 if nothing was."""
    from solution.collecting.report import describe_failures

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
