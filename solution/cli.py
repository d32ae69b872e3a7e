"""The entry: puts the commands together, and turns bad input into one message."""

import sys

import typer

from solution.commands.collecting import app as collecting_commands
from solution.commands.data import app as data_commands
from solution.commands.results import app as result_commands
from solution.commands.serving import app as serving_commands
from solution.commands.training import app as training_commands
from solution.system.errors import InputError
from solution.system.terminal import PlainConsole, accept_any_text
from submissions.commands import app as kaggle_commands
from submissions.kernels.commands import app as kernel_commands

EXIT_BAD_INPUT = 2

app = typer.Typer(
    help="Rank the compiler configurations of a tensor program from fastest to slowest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_commands)  # check, inspect, prepare, data, features, module
app.add_typer(training_commands)  # run, train, tune
app.add_typer(result_commands)  # ensemble, compare, report, verify, explain
app.add_typer(collecting_commands, name="collect")  # layout, tile, options, report
app.add_typer(serving_commands)  # pack, rank
app.add_typer(kaggle_commands)  # submit, scores, leaderboard, doctor
app.add_typer(kernel_commands, name="kernels")


def main() -> None:
    """Run the command line; bad input is one message and exit code 2."""
    accept_any_text()
    try:
        app()
    except (InputError, OSError) as error:  # OSError: no space, no permission, a folder in the way
        _end(str(error))
    except MemoryError as error:
        _end(f"the memory is not enough. Close other programs, or use fewer workers. {error}")


def _end(message: str) -> None:
    console = PlainConsole(stderr=True, soft_wrap=True)
    console.print(f"Error: {message}", style="red", markup=False)
    sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
