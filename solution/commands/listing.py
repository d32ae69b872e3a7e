"""Commands that list what there is: experiments, runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from solution.runs.folder import RECORD, find_runs
from solution.system.errors import InputError
from solution.system.terminal import make_table, output, say

# Heavy imports (torch, lightgbm, polars) wait inside the commands that need them.

app = typer.Typer()

RUNS = find_runs()


@app.command()
def experiments(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those of published systems and ablations.")
    ] = False,
) -> None:
    """List the experiments that come with the package: what each is, in a sentence."""
    from solution.experiments import DEFAULTS
    from solution.experiments.base import describe_experiments, list_added

    found = describe_experiments()
    of_papers = list_added()
    others = [name for name in found if name not in DEFAULTS and name not in of_papers]
    _show("What `fastslow run` trains", DEFAULTS, found)
    _show("Others, for --experiment; a Python file of yours is one as well", others, found)
    if everything:
        _show("Published systems and ablations", of_papers, found)
    else:
        say(f"{len(of_papers)} of published systems and ablations are left out. Give --all.")


def _show(title: str, names: Sequence[str], found: Mapping[str, str]) -> None:
    table = make_table(title)
    table.add_column("Name", no_wrap=True)
    table.add_column("What it is")
    for name in names:
        table.add_row(name, found[name])
    output.print(table)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder of the runs.")] = RUNS,
) -> None:
    """List the runs with their score, recipe and age, and what Kaggle said of them."""
    from submissions.runs import list_runs, show_runs

    found = list_runs(folder)
    if not found and folder.exists() and (folder.is_file() or (folder / RECORD).is_file()):
        raise InputError(f"{folder}: is no folder of runs. Give the one that it lies in.")
    if not found:
        say(f"{folder}: has no run yet. Make one with `fastslow run`.")
        return
    output.print(show_runs(found))
