"""Commands that measure users' programs: collect layout, tile, options, report."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solution.commands import options
from solution.system.errors import InputError
from solution.system.terminal import output, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from solution.collecting.collect import Settings
    from solution.collecting.program_space import ProgramSpace
    from solution.collecting.records import Destination
    from solution.collecting.session import Finished
    from solution.programs.program import Program
    from solution.training.executors.base import Executor

# Slow imports (polars, scipy) are inside the commands that need them.

app = typer.Typer(
    name="collect", help="Get training data from your programs: compile and time them in many ways."
)

Programs = Annotated[
    list[Path],
    typer.Argument(help="Python files with a jax function, StableHLO, HLO text or protobuf."),
]
Out = Annotated[Path, typer.Option(help="Folder of npz files, tuning records and logs.")]
Split = Annotated[Literal["train", "valid"], typer.Option(help="Split of the npz files.")]
Configs = Annotated[int, typer.Option(min=8, help="Configurations per program.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        callback=options.check_finite,
        help="Time limit for all programs. Default: 3 per file; for a TPU 20.",
    ),
]
Flat = Annotated[
    bool, typer.Option("--keep-flat", help="Also write graphs whose runtimes differ only by noise.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Start anew instead of resuming.")]


@app.command()
def layout(
    programs: Programs,
    out: Out = Path("collected"),
    collection: Annotated[
        str, typer.Option(help="Collection of the graphs; its last word names the search.")
    ] = "layout:xla:random",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: options.TargetMegabytes = None,
    seconds: options.TargetSeconds = None,
    seed: options.Seed = 0,
    keep_flat: Flat = False,
    arguments: options.ArgumentFile = None,
    replace: Replace = False,
    target: options.TargetOption = "cpu",
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
    module: options.ModuleOption = "",
    function: options.FunctionOption = "",
) -> None:
    """Get runtimes of programs in many layouts of their convolutions, dots and reshapes.

    The search is random; in layout:xla:default it starts at the compiler's choice and varies the
    fastest. If stopped or killed, the same command resumes. For a TPU the runtimes are estimates.
    """
    from solution.collecting.program_space import LAYOUTS
    from solution.collecting.records import Destination
    from solution.domain.collection import collection as find_collection

    found = find_collection(collection)
    if found.kind != "layout":
        raise InputError(f"{collection} holds tiles: collect them with `fastslow collect tile`.")
    _collect(
        programs, {"kind": LAYOUTS, "varies_fastest": not found.name.endswith(":random")},
        Destination(out, collection, split), target, (seconds, megabytes, minutes),
        options.make_executor(executor, address, None),
        wanted=options.make_wanted(module, function), configs=configs, seed=seed,
        keep_flat=keep_flat, replace=replace, arguments=arguments,
    )  # fmt: skip


@app.command()
def tile(
    programs: Programs,
    out: Out = Path("collected"),
    split: Split = "train",
    configs: Configs = 72,
    minutes: Minutes = None,
    megabytes: options.Megabytes = 2048,
    seconds: options.Seconds = 30,
    seed: options.Seed = 0,
    keep_flat: Flat = False,
    arguments: options.ArgumentFile = None,
    replace: Replace = False,
    target: options.TargetOption = "cpu",
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
    module: options.ModuleOption = "",
    function: options.FunctionOption = "",
) -> None:
    """Get runtimes of matrix products in many tilings of XLA's loops, on a CPU."""
    from solution.collecting.program_space import TILES
    from solution.collecting.records import Destination

    _collect(
        programs, {"kind": TILES}, Destination(out, "tile:xla", split), target,
        (seconds, megabytes, minutes), options.make_executor(executor, address, None),
        wanted=options.make_wanted(module, function), configs=configs, seed=seed,
        keep_flat=keep_flat, replace=replace, arguments=arguments,
    )  # fmt: skip


@app.command("options")
def vary_options(
    programs: Programs,
    out: Out = Path("collected-options"),
    source: Annotated[Literal["xla", "nlp"], typer.Option(help="Source of the programs.")] = "xla",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: options.TargetMegabytes = None,
    seconds: options.TargetSeconds = None,
    seed: options.Seed = 0,
    keep_flat: Flat = False,
    arguments: options.ArgumentFile = None,
    replace: Replace = False,
    target: options.TargetOption = "cpu",
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
    module: options.ModuleOption = "",
    function: options.FunctionOption = "",
) -> None:
    """Get runtimes of programs with different compile options; for a TPU, estimates.

    The npz files have one array more than the competition's, so they get a separate folder.
    """
    from solution.collecting.program_space import OPTIONS
    from solution.collecting.records import Destination

    _collect(
        programs, {"kind": OPTIONS}, Destination(out, f"layout:{source}:random", split), target,
        (seconds, megabytes, minutes), options.make_executor(executor, address, None),
        wanted=options.make_wanted(module, function), configs=configs, seed=seed,
        keep_flat=keep_flat, replace=replace, arguments=arguments,
    )  # fmt: skip


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder that a collection wrote.")] = Path(
        "collected"
    ),
    picture: Annotated[
        Path | None,
        typer.Option(help="A .png, .svg or .pdf file. Default: report.png in that folder."),
    ] = None,
) -> None:
    """Get tables and a picture of what you collected and of how noisy it is."""
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


def _collect(
    programs: list[Path],
    space: dict[str, Any],
    place: "Destination",
    target: str,
    limits: tuple[float | None, int | None, float | None],
    executor: "Executor",
    **how: Any,
) -> None:
    """Measure the programs, show the result, and say how to use it. `space`: arguments of the
    target's make_space, such as the kind of configurations. `limits`: seconds and megabytes of a
    compilation, and minutes for all programs (None: the target's default). `how`: other settings.
    Raises InputError if the target cannot be used here or has no such configurations."""
    from solution.collecting.collect import Settings
    from solution.collecting.report import show_finished
    from solution.collecting.session import collect_programs
    from solution.collecting.target import parse_target
    from solution.programs.child import Limits

    machine, (seconds, megabytes, minutes) = parse_target(target), limits
    machine.check(space["kind"])
    bounds = Limits(seconds or machine.seconds, megabytes or machine.megabytes)
    settings = Settings(target=machine, limits=bounds, **how)
    make_space = partial(machine.make_space, **space)
    minutes = minutes or settings.target.minutes * len(programs)
    if executor.is_away:
        if settings.arguments is not None:
            raise InputError(
                f"{settings.arguments}: --arguments are for a program that is timed on this "
                "machine. Leave out --executor, or --arguments."
            )
        finished = _collect_away(executor, programs, make_space, place, settings, minutes)
    else:
        finished = collect_programs(programs, make_space, place, settings, minutes)
    output.print(show_finished(place.collection, finished, settings.target.name))
    cut = [one.name for one in finished if one.state.get("cut")]
    if cut:
        say(
            f"{', '.join(cut)}: the time was over before all --configs were measured. The same "
            "command with more --minutes resumes."
        )
    for one in finished:
        if one.state.get("note"):
            say(one.state["note"])
    if defects := [one.defect for one in finished if one.defect]:
        raise InputError("\n".join(defects))
    _say_outcome(place.folder, finished)


def _collect_away(
    nodes: "Executor",
    files: list[Path],
    make_space: "Callable[[Program], ProgramSpace]",
    place: "Destination",
    settings: "Settings",
    minutes: float,
) -> "list[Finished]":
    """Measure the programs on a cluster, one per core; write the returned files on this machine."""
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
        # if a program yields no graph now, delete the graph that an earlier command wrote
        for one in result[0]:
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


def _pack_log(place: "Destination", path: Path) -> bytes | None:
    """Return the packed log of an earlier measurement of the program, with which a node resumes it;
    None if there is no log."""
    from solution.programs.program import name_program
    from solution.system.zips import pack_folder

    log = place.find("log", name_program(path))
    return pack_folder(log) if log.is_dir() else None


def _say_outcome(folder: Path, finished: "list[Finished]") -> None:
    """Say how to use the graphs that were written; end with exit code 1 if there are none."""
    from solution.collecting.report import describe_failures

    if any("npz" in one.state for one in finished):
        say(f"{folder}: check it with `fastslow check {quote(str(folder))}`.")
        return
    reason = describe_failures(finished)
    if any(one.state.get("left_out") == "flat" for one in finished):
        reason = "If all configurations take equally long, --keep-flat writes the graph anyway."
    say(f"{folder}: no graph was written. {reason}".rstrip())
    raise typer.Exit(1)
