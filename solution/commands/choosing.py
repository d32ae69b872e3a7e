"""The command that finds a faster configuration by measuring or estimating a few: choose."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solution.choosing.search import COMPILED, MEASURED
from solution.collecting.target import CPU, parse_target
from solution.commands import options
from solution.commands.serving import open_bundle
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.terminal import make_table, output, say

if TYPE_CHECKING:
    from rich.table import Table

    from solution.choosing.choose import Chosen, Settings
    from solution.choosing.estimated import Estimated
    from solution.serving.bundle import Bundle
    from solution.training.executors.base import Executor

# Slow imports (polars, scipy, matplotlib) are inside the commands that need them.

app = typer.Typer()
# {parameter of `choose` that only a TPU uses: its option on the command line}
OF_TPU = {"compile_": "--compile", "memory": "--memory", "each_copy": "--each-copy"}
# parameters of `choose` that have an effect only if programs are compiled
WHILE_MEASURING = (
    "over", "minutes", "out", "arguments", "megabytes", "seconds", "replace", "module", "function",
    "target", "executor", "address", *OF_TPU,
)  # fmt: skip
# {option with which nothing is compiled: parameters that then have no effect}
UNUSED = {
    "replay": WHILE_MEASURING,
    "model_only": (*WHILE_MEASURING, "measure", "seed", "search"),
    "verdict": (
        *(name for name in WHILE_MEASURING if name != "out"), "measure", "seed", "search",
        "bundle", "collection", "replay", "model_only", "program",
    ),
}  # fmt: skip

ProgramFile = Annotated[
    Path | None,
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
    typer.Option(min=0.5, callback=options.check_finite, help="Time limit, instead of --measure."),
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
Compile = Annotated[
    int | None,
    typer.Option(
        "--compile", min=1, help="With --target tpu:...: configurations to compile. Default: 48."
    ),
]
Memory = Annotated[
    bool,
    typer.Option("--memory", help="With --target tpu:...: search for less memory, not less time."),
]
EachCopy = Annotated[
    bool,
    typer.Option(
        "--each-copy",
        help="With --target tpu:...: choose layouts for each copy of a repeated layer alone, not "
        "once for all copies.",
    ),
]
VerdictFile = Annotated[
    Path | None,
    typer.Option("--verdict", help="Take back what verify.py measured on a TPU: its verdict.json."),
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
    program: ProgramFile = None,
    bundle: With = None,
    over: Over = None,
    measure: Measure = None,
    minutes: Minutes = None,
    target: options.TargetOption = "cpu",
    compile_: Compile = None,
    memory: Memory = False,
    each_copy: EachCopy = False,
    verdict: VerdictFile = None,
    replay: Replay = False,
    model_only: ModelOnly = False,
    out: Out = None,
    arguments: options.ArgumentFile = None,
    collection: InCollection = None,
    megabytes: options.TargetMegabytes = None,
    seconds: options.TargetSeconds = None,
    seed: options.Seed = 0,
    search: Search = "ours",
    replace: Replace = False,
    module: options.ModuleOption = "",
    function: options.FunctionOption = "",
    executor: options.ExecutorOption = "local",
    address: options.ClusterAddress = None,
) -> None:
    """Get a faster configuration of your program: a model proposes, compiling and timing decide.

    For a TPU its compiler's estimates decide. If stopped or killed, the same command resumes.
    """
    given = _list_given(context)
    if verdict is not None:
        _refuse_unused(given, verdict)
        _take_verdict(verdict, out)
        return
    if program is None:
        raise InputError("Give a program's file, such as `fastslow choose my_program.py`.")
    _refuse_unused(given, program)
    if replay or model_only:
        count = measure or MEASURED if replay else None
        say(_look_up(program, bundle, search, collection, count, seed))
        return
    settings = _make_settings(
        given, target, compile_ if target != CPU else measure, minutes, seconds, megabytes,
        kinds=tuple(over or ()), seed=seed, search=search, replace=replace,
        wanted=options.make_wanted(module, function), arguments=arguments, each_copy=each_copy,
        nodes=_find_nodes(target, executor, address),
    )  # fmt: skip
    _search(program, _open_leading(bundle, search, target), out, settings, memory=memory)


def _take_verdict(verdict: Path, out: Path | None) -> None:
    from solution.choosing.measured import take_verdict

    say(take_verdict(verdict, out))


def _search(
    program: Path, leading: "Bundle | None", out: Path | None, settings: "Settings", *, memory: bool
) -> None:
    """Search by measurements on this machine, or by a TPU's estimates; show the result. `leading`:
    the bundle that guides the search, if any. `memory`: find a program that needs less memory."""
    from solution.programs.program import name_program
    from solution.system.names import make_safe
    from solution.system.progress import console

    parts = (settings.wanted.module, settings.wanted.function) if settings.wanted else ()
    name = "-".join([name_program(program), *(part for part in parts if part)])
    folder = out or Path("chosen") / make_safe(name)
    check_writable(folder)
    with console.status(f"{program.name}: starting") as status:

        def tell(note: str) -> None:
            status.update(f"{program.name}: {note}")

        if settings.target.name == CPU:
            from solution.choosing.choose import choose_program

            chosen = choose_program(program, leading, folder, settings, tell)
            show = partial(_show, chosen)
        else:
            from solution.choosing.estimated import MEMORY, TIME, choose_for_tpu

            goal = MEMORY if memory else TIME
            estimated = choose_for_tpu(program, leading, folder, settings, goal, tell)
            show = partial(_show_estimated, estimated)
    show()


def _look_up(
    program: Path,
    bundle: Path | None,
    search: str,
    collection: str | None,
    measured: int | None,
    seed: int,
) -> str:
    """Return in words what a search in a file of known runtimes finds. `measured`: number of
    runtimes to look up; None: only say what the model ranks first."""
    from solution.choosing.offline import follow_model, replay_file

    if measured is None:
        return follow_model(program, open_bundle(bundle, None, None), collection, seed)
    leading = _open_leading(bundle, search)
    return replay_file(program, leading, collection, measured, seed, search)


def _make_settings(
    given: set[str],
    target: str,
    configs: int | None,
    minutes: float | None,
    seconds: float | None,
    megabytes: int | None,
    **settings: Any,
) -> "Settings":
    """Return the settings of a search on this machine or for a TPU.

    Args:
        given: names of the parameters on the command line.
        configs: number of configurations to measure or compile.

    Raises InputError if there is no such target, it cannot be used here, or an option is for
    another kind of target.
    """
    from solution.choosing.choose import Settings
    from solution.programs.child import Limits

    machine = parse_target(target)
    if target == CPU and (wrong := sorted(given & OF_TPU.keys())):
        raise InputError(
            f"{OF_TPU[wrong[0]]} is for a TPU, whose compiler estimates: add --target tpu:v5e. A "
            "program on this machine is timed: give --measure."
        )
    if target != CPU and "measure" in given:
        raise InputError(
            f"--measure is for programs that are timed on this machine; for {target} the compiler "
            "estimates: give --compile."
        )
    machine.check()
    default = MEASURED if target == CPU else COMPILED
    return Settings(
        measurements=configs if configs or minutes else default,
        seconds=60 * minutes if minutes else None,
        limits=Limits(seconds or machine.seconds, megabytes or machine.megabytes),
        target=machine, **settings,
    )  # fmt: skip


def _find_nodes(target: str, executor: str, address: str | None) -> "Executor | None":
    """Return the cluster that compiles for a TPU; None if this machine compiles. Raises InputError
    for a cluster if the target is the CPU."""
    nodes = options.make_executor(executor, address, None)
    if not nodes.is_away:
        return None
    if target == CPU:
        raise InputError(
            f"--executor {executor} is for a TPU, whose compiler estimates: add --target tpu:v5e. "
            "Times of different machines cannot be compared."
        )
    return nodes


def _open_leading(bundle: Path | None, search: str, target: str = CPU) -> "Bundle | None":
    """Return the bundle whose model guides the search; None if the search needs no model. Raises
    InputError if a bundle is given that the search does not use."""
    from solution.choosing.methods import check_method, is_led

    if is_led(check_method(search)):
        return open_bundle(bundle, None, None, target)
    if bundle is not None:
        raise InputError(f"--search {search} is not guided by a bundle. Leave --with out.")
    return None


def _list_given(context: typer.Context) -> set[str]:
    """Return the names of the parameters that are on the command line."""
    return {
        name for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }  # fmt: skip


def _spell(name: str) -> str:
    """Return a parameter of `choose` as it is typed on the command line, such as --over."""
    renamed = {**OF_TPU, "bundle": "--with", "program": "a program"}
    return renamed.get(name, f"--{name.replace('_', '-')}")


def _refuse_unused(given: set[str], program: Path) -> None:
    """Raise InputError if an option would have no effect, or the file `program` holds no program to
    compile. `given`: names of the parameters on the command line."""
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
                f"Give {_spell(way)} (compile nothing) or {_spell(name)} (for a search that "
                "compiles), not both."
            )
    if "collection" in given and not given & set(UNUSED):
        raise InputError("--collection is for --replay and --model-only. Leave it out.")


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
    table = make_table(
        Text(chosen.name), "Spent: includes compiling and timing the best again.",
        numbers=("Measured", "Failed", "Default, us", "Best found", "Gain", "Spent, s"),
    )  # fmt: skip
    verdict = chosen.verdict
    gain = "-" if verdict is None else f"{verdict.gain:.3f}"
    best = "-" if verdict is None else f"{chosen.reference / verdict.gain / 1000:.1f}"
    table.add_row(
        str(len(chosen.trials)), str(failed), f"{chosen.reference / 1000:.1f}", best, gain,
        f"{chosen.seconds:.0f}",
    )  # fmt: skip
    return table


def _show_estimated(found: "Estimated") -> None:
    from solution.choosing.journal import describe_failures
    from solution.choosing.measured import describe_measured

    output.print(_tabulate_estimated(found))
    say(found.sentence())
    if found.best is not None:
        say(f"{found.configuration}.")
    if found.savings is not None:
        say("By the compiler's estimates, in shares of the default's:")
        for line in found.savings.lines():
            say(f"  {line}")
    if refused := describe_failures(found.trials):
        say(refused)
    say(found.note)
    for measured in found.measured:
        say(describe_measured(measured, found.target))
    for measured in (one for records in found.earlier.values() for one in records):
        say(f"For an earlier choice: {describe_measured(measured, found.target)}")
    for path in found.files:
        say(f"Written: {path}")


def _tabulate_estimated(found: "Estimated") -> "Table":
    from rich.text import Text

    table = make_table(
        Text(found.name), f"Estimates of the compiler for {found.target}: nothing was measured.",
        names=("",), numbers=("Estimate, us", "Memory, MB"),
    )  # fmt: skip
    for name, trial in (("default", found.default), ("best found", found.best)):
        if trial is not None:
            time = "refused" if trial.nanoseconds is None else f"{trial.nanoseconds / 1000:,.1f}"
            memory = "-" if trial.memory is None else f"{trial.memory / 1e6:,.1f}"
            table.add_row(name, time, memory)
    return table
