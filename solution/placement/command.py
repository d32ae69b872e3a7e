"""The command `optimize`: assign devices, order and fusions to the operations of a program."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solution.commands.options import (
    FunctionOption,
    ModuleOption,
    Seed,
    check_outputs,
    read_only_module,
)
from solution.system.errors import InputError
from solution.system.names import check_ending
from solution.system.pictures import FORMATS
from solution.system.terminal import make_table, output, say

if TYPE_CHECKING:
    from solution.placement.placement_report import PlacementReport

app = typer.Typer()


@app.command()
def optimize(
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="npz file, XLA program or built-in program.")
    ],
    tasks: Annotated[str, typer.Option(help="Tasks to decide, joined by commas.")] = (
        "fusion,placement,schedule"
    ),
    devices: Annotated[int, typer.Option(min=1, max=8, help="Number of devices.")] = 2,
    machine: Annotated[str, typer.Option(help="p100, v100 or cpu; mixed: v100+p100.")] = ("p100"),
    evaluations: Annotated[
        int, typer.Option(min=1, help="Decisions to simulate; heuristics make the first ones.")
    ] = 2000,
    seed: Seed = 0,
    policy: Annotated[
        Path | None, typer.Option(help="File of a policy. Default: the bundled one.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Draw the timeline: .png, .svg or .pdf.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace for chrome://tracing, Perfetto: .json.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write each node's device, priority and kernel as CSV.")
    ] = None,
    module: ModuleOption = "",
    function: FunctionOption = "",
) -> None:
    """Get a device, an order and a fusion for a program's operations, chosen by simulation."""
    from solution.placement.graphs.graph_files import NPZ, read_cost_graph
    from solution.placement.graphs.workloads import WORKLOADS
    from solution.placement.machine import make_machine
    from solution.placement.placement_report import optimize_and_report
    from solution.placement.policy.network import SHIPPED, load_policy

    file = None if graph in WORKLOADS else Path(graph)
    check_outputs(file, policy, timeline=timeline, trace=trace, out=out)
    if (module or function) and (file is None or file.suffix == NPZ):
        raise InputError(f"{graph}: --module and --function choose a program of a file of XLA.")
    check_ending(timeline, *FORMATS)
    check_ending(trace, ".json")
    read = read_cost_graph(graph, partial(read_only_module, module=module, function=function))
    made = make_machine(devices, machine)
    chosen = tuple(task.strip() for task in tasks.split(","))
    asked = load_policy(policy or SHIPPED)
    report = optimize_and_report(read, made, chosen, asked, evaluations, seed)
    _show(report)
    _write(report, timeline, trace, out)


def _write(
    report: "PlacementReport", timeline: Path | None, trace: Path | None, decision: Path | None
) -> None:
    from solution.placement.placement_report import write_decision
    from solution.placement.simulation.timeline import draw_timeline, write_trace

    happened = report.graph, report.evaluator.machine, report.line
    for word, path, write in (
        ("Timeline", timeline, partial(draw_timeline, *happened)),
        ("Trace", trace, partial(write_trace, *happened)),
        ("Decision", decision, partial(write_decision, report)),
    ):
        if path is not None:
            write(path)
            say(f"{word}: {path}")


def _show(report: "PlacementReport") -> None:
    say(report.summary())
    table = make_table(expendable=("Sent", "Memory"))
    for name in ("Device", "Kernels", "Busy", "Memory", "Sent"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("From the start to the end", no_wrap=True)
    for row in report.rows():
        table.add_row(*row)
    output.print(table)
    say(report.fusions())
    say(report.origin())
