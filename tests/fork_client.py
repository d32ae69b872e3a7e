"""Asks a fork server to run a program, hands over all that is the caller's, and waits for its end.

Run as a program, it stands in for the one that the server forks: same arguments, environment,
folder, process group and open files, and the same exit code. tests/processes.py puts it beside the
server's socket. It starts without the site's packages, and with what is compiled into Python: to
import signal, socket and json takes longer than all else that it does.
"""

import _signal as signal
import array
import os
import sys
from _socket import AF_UNIX, MSG_WAITALL, SCM_RIGHTS, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def ask(
    address: str,
    arguments: "Sequence[str]",
    environment: "Mapping[str, str]",
    folder: str,
    group: int,
    files: "Mapping[int, int]",
) -> socket:
    """Let the program begin; the connection tells its number, and then that it has ended.

    Args:
        group: the process group that it joins; 0: one of its own.
        files: for each number that it is to find open, a descriptor of this process.
    """
    connection = socket(AF_UNIX)
    connection.connect(address)
    call = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": folder,
        "group": group,
        "numbers": list(files),
    }
    line = repr(call).encode() + b"\n"  # there is no line break in what stands for a value
    opened = array.array("i", files.values())
    sent = connection.sendmsg([line], [(SOL_SOCKET, SCM_RIGHTS, opened)])
    connection.sendall(line[sent:])
    return connection


def receive(connection: socket) -> int:
    """The next number that the server tells."""
    told = connection.recv(4, MSG_WAITALL)
    if len(told) < 4:
        raise ConnectionError("the fork server ended; its reason stands above")
    return int.from_bytes(told, "big", signed=True)


def finish(connection: socket) -> int:
    """The exit code, negative after a signal, of the program that ends or has ended."""
    receive(connection)
    connection.sendall(b"?")
    return receive(connection)


def is_inheritable(number: int) -> bool:
    """Whether a program that this one starts finds the descriptor."""
    try:
        return os.get_inheritable(number)
    except OSError:  # the one with which the list of them was read
        return False


def main() -> None:
    """Be the program, as its caller sees it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, and so it
    opened = map(int, os.listdir("/dev/fd"))  # noqa: PTH208 - pathlib takes long to import
    files = {number: number for number in opened if is_inheritable(number)}
    address = f"{__file__.rpartition('/')[0]}/socket"
    folder = os.getcwd()  # noqa: PTH109
    connection = ask(address, sys.argv[1:], os.environ, folder, os.getpgrp(), files)
    receive(connection)
    code = finish(connection)
    if code < 0:  # a signal ended it
        if -code != signal.SIGKILL:  # which nobody can have changed
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
