"""Run the command line, and turn bad input into one message.

Slow imports are inside functions, so that Ctrl-C is handled from the beginning.
"""

import signal
import sys

from solution.system.errors import InputError

EXIT_BAD_INPUT = 2
# exit codes after Ctrl-C, after SIGTERM
EXIT_STOPPED, EXIT_ENDED = 130, 143
# Commands that keep finished work and resume; after a stop, the other commands begin anew.
KEEPING = frozenset({"choose", "collect", "data", "demo", "prepare", "run", "train", "tune"})
# Commands with temporary files or child processes, which are removed if a signal ends the command.
CLEARING = frozenset({"choose", "collect", "onnx", "rank", "tune"})
KEPT, STOPPED = "Finished work is kept: the same command resumes.", "Stopped."


def main() -> None:
    """Run the command line; bad input ends it with one message and exit code 2."""
    try:
        _run()
    except KeyboardInterrupt:  # Ctrl-C while libraries are imported; later, the commands handle it
        _stop()
    except Exception as error:
        if not _came_of_stopping(error):
            raise
        _stop()


def _run() -> None:
    from solution.commands.assembly import assemble
    from solution.system.scratch import scratch_folder
    from solution.system.terminal import accept_any_text

    accept_any_text()
    if not CLEARING.isdisjoint(sys.argv[1:2]):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_ENDED))
    try:
        with scratch_folder():
            assemble(sys.argv[1:])()
    except InputError as error:
        _end(str(error))
    except OSError as error:  # such as a full disk, no permission, or a folder in a file's place
        _end(_describe(error))
    except MemoryError as error:
        _end(f"the memory is not enough. Close other programs, or use fewer workers. {error}")
    except SystemExit as ended:
        if ended.code == EXIT_STOPPED:
            _say_stopped()
        raise


def _describe(error: OSError) -> str:
    """Return the system's message; for a full disk, also the file's name and advice."""
    from solution.system.refusals import FULL

    if error.errno not in FULL or error.filename is None:
        return str(error)
    return (
        f"{error.filename}: cannot be written ({error.strerror}). Make room, or choose another "
        "folder."
    )


def _came_of_stopping(error: BaseException | None) -> bool:
    """Return True if Ctrl-C caused the error: libraries may turn it into another exception."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _stop() -> None:
    _say_stopped()
    sys.exit(EXIT_STOPPED)


def _say_stopped() -> None:
    print(STOPPED if KEEPING.isdisjoint(sys.argv[1:2]) else KEPT, file=sys.stderr)


def _end(message: str) -> None:
    from solution.system.terminal import PlainConsole

    console = PlainConsole(stderr=True, soft_wrap=True)
    console.print(f"Error: {message}", style="red", markup=False)
    sys.exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
