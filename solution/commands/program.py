"""Assemble all commands into one command line."""

from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Annotated

import typer

from solution.commands.examples import arrange
from solution.commands.places import refuse_addresses
from solution.system.terminal import say

# The modules in which each command, or group of commands, is defined.
FILES = {
    "solution.commands.data": ("check", "inspect", "prepare", "data", "features", "module"),
    "solution.commands.running": ("run", "demo"),
    "solution.commands.training": ("train", "tune"),
    "solution.commands.results": ("ensemble", "compare", "report", "verify", "explain"),
    "solution.commands.listing": ("experiments", "runs"),
    "solution.commands.serving": ("pack", "rank", "onnx"),
    "solution.commands.choosing": ("choose",),
    "solution.placement.command": ("optimize",),
    "submissions.commands": ("submit", "scores", "leaderboard", "doctor"),
    "solution.commands.collecting": ("collect",),
    "solution.commands.kernels": ("kernels",),
}


def assemble(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line app.

    Args:
        words: the typed words. If the first is a command, only the module that defines it is
            imported: importing all of them takes longer.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(options)
    needed = [file for file, names in FILES.items() if words and words[0] in names]
    for file in needed or FILES:
        app.add_typer(import_module(file).app)
    arrange(app)
    refuse_addresses(app)
    return app


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True)
    ] = False,
) -> None:
    """Rank the compiler configurations of a tensor program from fastest to slowest."""
    if version:
        say(f"fast-or-slow {metadata.version('fast-or-slow')}")
        raise typer.Exit
