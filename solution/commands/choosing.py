"""The command that finds a faster configuration by measuring a few: choose."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solution.choosing.search import MEASURED
from solution.commands.options import (
    ArgumentFile,
    FunctionOption,
    Megabytes,
    ModuleOption,
    Seconds,
    Seed,
    check_finite,
    make_wanted,
)
from solution.commands.serving import open_bundle
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.terminal import make_table, output, say

if TYPE_CHECKING:
    from rich.table import Table

    from solution.choosing.choose import Chosen, Settings
    from solution.serving.bundle import Bundle

# Slow imports (polars, scipy, matplotlib) are inside the commands that need them.

app = typer.Typer()
WHILE_MEASURING = (
    "over", "minutes", "out", "arguments", "megabytes", "seconds", "replace", "module", "function",
)  # fmt: skip
UNUSED = {  # options without effect with --replay or --model-only, which compile nothing
    "replay": WHILE_MEASURING,
    "model_only": (*WHILE_MEASURING, "measure", "seed", "search"),
}

ProgramFile = Annotated[
    Path,
    typer.Argument(help="Python file with a jax function, or HLO; npz for --replay, --model-only."),
]
With = Annotated[
    Path | None,
    typer.Option("--with", help="Bundle that guides the search. Default: the bundled one."),
]
Over = Annotated[
    list[str] | None,
    typer.Option(help="What to vary: layouts, options or tiles; may be repeated. Default: all."),
]
Measure = Annotated[
    int | None, typer.Option(min=1, help=f"Configurations to measure. Default: {MEASURED}.")
]
Minutes = Annotated[
    float | None,
    typer.Option(min=0.5, callback=check_finite, help="Time limit, instead of --measure."),
]
Replay = Annotated[
    bool, typer.Option("--replay", help="Look runtimes up in the npz file; compile nothing.")
]
ModelOnly = Annotated[
    bool,
    typer.Option(
        "--model-only", help="Measure nothing: show the configuration that the model ranks first."
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the results and the journal. Default: chosen/NAME.")
]
InCollection = Annotated[
    str | None,
    typer.Option(help="For --replay and --model-only, if the path does not tell the collection."),
]
Search = Annotated[
    str,
    typer.Option(
        help="Search method: ours, order (the model's ranking), random, genetic, annealing, beam, "
        "cross-entropy, tpe or gaussian-process."
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Start anew instead of resuming.")]


@app.command()
def choose(
    context: typer.Context,
    program: ProgramFile,
    bundle: With = None,
    over: Over = None,
    measure: Measure = None,
    minutes: Minutes = None,
    replay: Replay = False,
    model_only: ModelOnly = False,
    out: Out = None,
    arguments: ArgumentFile = None,
    collection: InCollection = None,
    megabytes: Megabytes = 4096,
    seconds: Seconds = 60,
    seed: Seed = 0,
    search: Search = "ours",
    replace: Replace = False,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Get a faster configuration of your program: a model proposes, compiling and timing decide.

    If it is stopped or killed, the same command resumes.
    """
    _refuse_unused(context, program)
    if model_only:
        from solution.choosing.offline import follow_model

        say(follow_model(program, open_bundle(bundle, None, None), collection, seed))
        return
    leading = _open_leading(bundle, search)
    if replay:
        from solution.choosing.offline import replay_file

        say(replay_file(program, leading, collection, measure or MEASURED, seed, search))
        return
    from solution.choosing.choose import Settings
    from solution.programs.child import Limits

    settings = Settings(
        measurements=measure if measure or minutes else MEASURED,
        seconds=60 * minutes if minutes else None, kinds=tuple(over or ()), seed=seed,
        search=search, limits=Limits(seconds, megabytes), replace=replace,
        wanted=make_wanted(module, function), arguments=arguments,
    )  # fmt: skip
    _show(_measure(program, leading, out or Path("chosen") / program.stem, settings))


def _open_leading(bundle: Path | None, search: str) -> "Bundle | None":
    """Return the bundle whose model guides the search; None if the search needs no model.

    Raises InputError if a bundle is given that the search does not use.
    """
    from solution.choosing.methods import check_method, is_led

    if is_led(check_method(search)):
        return open_bundle(bundle, None, None)
    if bundle is not None:
        raise InputError(f"--search {search} is not guided by a bundle. Leave --with out.")
    return None


def _measure(
    program: Path, leading: "Bundle | None", folder: Path, settings: "Settings"
) -> "Chosen":
    from solution.choosing.choose import choose_program
    from solution.system.progress import console

    check_writable(folder)
    with console.status(f"{program.name}: starting") as status:
        return choose_program(
            program, leading, folder, settings,
            lambda note: status.update(f"{program.name}: {note}"),
        )  # fmt: skip


def _refuse_unused(context: typer.Context, program: Path) -> None:
    """Raise InputError if an option would have no effect, or a file has nothing to compile."""
    given = {
        name for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }  # fmt: skip
    if {"replay", "model_only"} <= given:
        raise InputError("Give --replay (look up) or --model-only (measure nothing), not both.")
    if program.suffix == ".npz" and not given & set(UNUSED):
        raise InputError(
            f"{program}: an npz file has configurations and no program that could be compiled. "
            "Give --replay (their runtimes are looked up) or --model-only."
        )
    for way in given & set(UNUSED):
        for name in sorted(given & set(UNUSED[way])):
            raise InputError(
                f"Give --{way.replace('_', '-')} (compile nothing) or --{name} (for a search that "
                "compiles and times), not both."
            )
    if "collection" in given and not given & set(UNUSED):
        raise InputError(
            "--collection is for --replay and --model-only: the collection of a program that is "
            "compiled is known. Leave it out."
        )


def _show(chosen: "Chosen") -> None:
    from solution.choosing.journal import describe_failures

    output.print(_tabulate(chosen))
    if chosen.verdict is None:
        say(
            "No gain can be shown: only the compiler's default could be measured and timed again "
            f"in all rounds. {describe_failures(chosen.trials)}".rstrip()
        )
    else:
        say(chosen.verdict.sentence())
        if chosen.verdict.is_gain:
            say(f"{chosen.configuration}. {chosen.changes}")
        else:
            say("Leave the program as the compiler has it.")
    say(chosen.note)
    for path in chosen.files:
        say(f"Written: {path}")


def _tabulate(chosen: "Chosen") -> "Table":
    from rich.text import Text

    failed = sum(trial.nanoseconds is None for trial in chosen.trials)
    table = make_table(Text(chosen.name), "Spent: includes compiling and timing the best again.")
    for name in ("Measured", "Failed", "Default, us", "Best found", "Gain", "Spent, s"):
        table.add_column(name, justify="right")
    verdict = chosen.verdict
    gain = "-" if verdict is None else f"{verdict.gain:.3f}"
    best = "-" if verdict is None else f"{chosen.reference / verdict.gain / 1000:.1f}"
    table.add_row(
        str(len(chosen.trials)), str(failed), f"{chosen.reference / 1000:.1f}", best, gain,
        f"{chosen.seconds:.0f}",
    )  # fmt: skip
    return table
