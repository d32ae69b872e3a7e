"""End child processes as well if a signal ends this process, as Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by SystemExit, with a shell's exit code.

    By default they end the process at once, and its children keep running. A signal that is ignored
    (as after nohup) or already has another handler is left unchanged.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ours = [n for n in ENDING if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise SystemExit(128 + number)
