"""Assemble all commands into one command line, with help groups, examples and checked paths."""

from collections.abc import Sequence
from importlib import import_module, metadata
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, get_args

import typer
from typer.models import ParameterInfo

from solution.system.names import refuse_address
from solution.system.terminal import say

# The modules that define commands, and the names of their commands and groups of commands.
FILES = {
    "solution.commands.data": ("check", "inspect", "prepare", "data", "features", "module"),
    "solution.commands.running": ("run", "demo"),
    "solution.commands.training": ("train", "tune"),
    "solution.commands.results": (
        "ensemble", "compare", "report", "verify", "explain", "experiments", "runs",
    ),
    "solution.commands.serving": ("pack", "rank", "onnx"),
    "solution.commands.choosing": ("choose",),
    "solution.placement.command": ("optimize",),
    "submissions.commands": ("submit", "scores", "leaderboard", "doctor"),
    "solution.commands.collecting": ("collect",),
    "solution.commands.kernels": ("kernels",),
}  # fmt: skip

# {group in the help: its commands}
GROUPS = {
    "Look": ("check", "inspect", "features", "module", "experiments", "runs", "explain"),
    "Train": ("data", "prepare", "demo", "run", "train", "tune"),
    "Use": ("rank", "choose", "collect", "optimize", "pack", "onnx"),
    "Judge": ("ensemble", "compare", "report", "verify"),
    "Submit": ("doctor", "submit", "scores", "leaderboard", "kernels"),
}
# {command: examples in its help}
EXAMPLES = {
    "check": ("fastslow check data", "fastslow check stores/data"),
    "inspect": (
        "fastslow inspect graph.npz --collection tile:xla",
        "fastslow inspect a/tile/xla/train/b.npz",
        "fastslow inspect stores/data --graph b",
        "fastslow inspect data --picture pictures",
    ),
    "features": (
        "fastslow features tile:xla",
        "fastslow features tile:xla --data data --out table.parquet",
    ),
    "module": ("fastslow module program.pb", "fastslow module program.pb --to programs"),
    "experiments": (
        "fastslow experiments",
        "fastslow experiments --all",
        "fastslow run --experiment tile_gnn_001",
    ),
    "runs": ("fastslow runs", "fastslow runs elsewhere/runs"),
    "explain": (
        "fastslow explain tile_lightgbm_001 bmm_020",
        "fastslow explain tile_lightgbm_001 bmm_020 --config 3",
    ),
    "data": ("fastslow data", "fastslow data --collection layout:xla:random"),
    "prepare": ("fastslow prepare data", "fastslow prepare data --hops 1 --out stores/pruned"),
    "demo": ("fastslow demo",),
    "run": (
        "fastslow run data",
        "fastslow run data --estimate",
        "fastslow run data --experiment my_model.py --collection tile:xla",
    ),
    "train": ("fastslow train tile_gnn_001", "fastslow train my_model.py --collection tile:xla"),
    "tune": (
        "fastslow tune tile_lightgbm_001 --trials 25",
        "fastslow tune layout_lightgbm_001 --sampler random",
    ),
    "ensemble": (
        "fastslow ensemble mine.toml --run runs/data",
        "fastslow ensemble --search --out found.toml",
    ),
    "compare": (
        "fastslow compare layout_gnn_001 layout_lightgbm_001",
        "fastslow compare found.toml z_score_001",
    ),
    "rank": (
        "fastslow rank program.npz",
        "fastslow rank program.pb --configs 200 --run runs/data --csv order.csv",
    ),
    "choose": (
        "fastslow choose my_program.py --measure 24",
        "fastslow choose my_product.py --over tiles --minutes 2",
        "fastslow choose a/tile/xla/train/b.npz --replay",
    ),
    "optimize": (
        "fastslow optimize program.pb --tasks fusion,placement,schedule --devices 4",
        "fastslow optimize rnnlm-2 --machine v100+p100 --timeline rnnlm.png",
    ),
    "pack": (
        "fastslow pack runs/data --out mine.zip",
        "fastslow pack runs/data --out small --distill",
    ),
    "onnx": ("fastslow onnx students", "fastslow onnx students --with small.zip"),
    "report": ("fastslow report --run runs/data", "fastslow report --recipe mean_rank_001"),
    "verify": ("fastslow verify runs/data/submission.csv --run runs/data",),
    "doctor": ("fastslow doctor",),
    "submit": (
        "fastslow submit --run runs/data --dry-run",
        "fastslow submit best --run runs/data",
    ),
    "scores": ("fastslow scores",),
    "leaderboard": ("fastslow leaderboard",),
}
# sentence of the error message for a bucket's address where only a path is allowed
TAKERS = (
    "Addresses are taken by `run` and `train` for data and results, `tune` and `features` for data."
)


def assemble(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line app. `words`: the typed words. If the first is a command, only the
    module that defines this command is imported, because importing all modules takes longer."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_options)
    needed = [file for file, names in FILES.items() if words and words[0] in names]
    for file in needed or FILES:
        app.add_typer(import_module(file).app)
    arrange(app)
    check_paths(app)
    return app


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True)
    ] = False,
) -> None:
    """Get a tensor program's compiler configurations ranked, from fastest to slowest.

    Start with `fastslow demo`, or with `fastslow rank FILE`.
    """
    if version:
        say(f"fast-or-slow {metadata.version('fast-or-slow')}")
        raise typer.Exit


def arrange(app: typer.Typer) -> None:
    """Put every command of the app into its help group, with examples unless it has subcommands."""
    panels = {name: panel for panel, names in GROUPS.items() for name in names}
    for group in app.registered_groups:
        if group.typer_instance is None:
            continue
        if name := group.typer_instance.info.name:  # the group has subcommands
            group.rich_help_panel = panels[name]
            continue
        for command in group.typer_instance.registered_commands:
            name = command.name or getattr(command.callback, "__name__", "")
            if name in panels:
                command.rich_help_panel = panels[name]
                command.epilog = "\n\n".join(["Examples:", *(f"  {e}" for e in EXAMPLES[name])])


def read_path(text: str | Path) -> Path:
    """Return the typed path; raise InputError for a bucket's address, BadParameter for an empty
    text. `Path` would turn s3://BUCKET/NAME into the local folder s3:/BUCKET/NAME."""
    return Path(refuse_address(refuse_empty(str(text)), TAKERS))


def refuse_empty(text: str) -> str:
    """Return the text; raise BadParameter if it is empty, which would mean the current folder."""
    if not text:
        raise typer.BadParameter("expected a file or folder, found nothing. Is a variable empty?")
    return text


read_path.__name__ = "path"  # older versions of typer show this name in the help


def check_paths(app: typer.Typer) -> None:
    """Make all commands of the app and of its groups parse their paths with `read_path`."""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            check_paths(group.typer_instance)
    for command in app.registered_commands:
        for annotation in get_annotations(command.callback).values() if command.callback else ():
            kind, *described = get_args(annotation) or (None,)
            if kind is Path or Path in get_args(kind):  # also an optional path, or a list of paths
                for info in described:
                    if isinstance(info, ParameterInfo) and info.parser is None:
                        info.parser = read_path
