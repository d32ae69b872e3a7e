"""The entry: puts the commands together, and turns bad input into one message."""

import sys
from importlib import metadata
from typing import Annotated

import typer

from solution.commands.choosing import app as choosing_commands
from solution.commands.collecting import app as collecting_commands
from solution.commands.data import app as data_commands
from solution.commands.examples import arrange
from solution.commands.listing import app as listing_commands
from solution.commands.placement import app as placement_commands
from solution.commands.results import app as result_commands
from solution.commands.running import app as running_commands
from solution.commands.serving import app as serving_commands
from solution.commands.serving import kernels as sharing_commands
from solution.commands.training import app as training_commands
from solution.system.errors import InputError
from solution.system.mapping import EXIT_BAD_INPUT, name_cut_files
from solution.system.terminal import PlainConsole, accept_any_text, say
from submissions.commands import app as kaggle_commands
from submissions.kernels.commands import app as kernel_commands

EXIT_STOPPED = 130  # by Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_commands)  # check, inspect, prepare, data, features, module
app.add_typer(running_commands)  # run, demo
app.add_typer(training_commands)  # train, tune
app.add_typer(result_commands)  # ensemble, compare, report, verify, explain
app.add_typer(listing_commands)  # experiments, runs
app.add_typer(collecting_commands, name="collect")  # layout, tile, options, report
app.add_typer(serving_commands)  # pack, rank, onnx
app.add_typer(choosing_commands)  # choose
app.add_typer(placement_commands)  # optimize
app.add_typer(kaggle_commands)  # submit, scores, leaderboard, doctor
kernel_commands.add_typer(sharing_commands)  # share: it looks at bundles, which they do not
app.add_typer(kernel_commands, name="kernels")

arrange(app)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True)
    ] = False,
) -> None:
    """Rank the compiler configurations of a tensor program from fastest to slowest."""
    if version:
        say(f"fast-or-slow {metadata.version('fast-or-slow')}")
        raise typer.Exit


def main() -> None:
    """Run the command line; bad input is one message and exit code 2."""
    accept_any_text()
    name_cut_files()
    try:
        app()
    except (InputError, OSError) as error:  # OSError: no space, no permission, a folder in the way
        _end(str(error))
    except MemoryError as error:
        _end(f"the memory is not enough. Close other programs, or use fewer workers. {error}")
    except SystemExit as ended:
        if ended.code == EXIT_STOPPED:
            console = PlainConsole(stderr=True)
            console.print("What is finished is kept: the same command goes on.", highlight=False)
        raise


def _end(message: str) -> None:
    console = PlainConsole(stderr=True, soft_wrap=True)
    console.print(f"Error: {message}", style="red", markup=False)
    sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
