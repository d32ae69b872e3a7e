"""End the process with a message, not silently, if a memory-mapped file was truncated.

The system sends SIGBUS to a process that reads a page of a mapped file that no longer exists. A
signal handler of Python's would be useless: Python would call it later, but the read never returns.
So the handler is registered with the C library, which calls it at once, and it ends the process.

This project's programs never truncate a file. They replace it, and processes that have mapped the
old file keep it.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

EXIT_BAD_INPUT = 2
PAGE = os.sysconf("SC_PAGESIZE")
MAPS = Path("/proc/self/maps")
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)


def name_cut_files() -> None:
    """Make reading a truncated mapped file end the process with a message and exit code 2. It
    registers a handler for SIGBUS on Linux, and does nothing on other systems."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.signal.argtypes = (ctypes.c_int, _Handler)
        library.signal(signal.SIGBUS, _end)


def find_cut_files() -> list[str]:
    """Return the mapped files that are now shorter than their mapping."""
    found = []
    for line in MAPS.read_text(errors="surrogateescape").splitlines():
        addresses, rights, offset, _, _, *path = line.split(maxsplit=5)
        # only shared mappings of files; libraries are mapped privately
        if path and path[0].startswith("/") and rights.endswith("s"):
            first, last = (int(address, 16) for address in addresses.split("-"))
            pages = -(-_size(path[0]) // PAGE)
            if pages * PAGE < int(offset, 16) + last - first:
                found.append(path[0])
    return list(dict.fromkeys(found))


def _size(path: str) -> int:
    """Return the size of a file; sys.maxsize if it was deleted, which is no truncation."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return sys.maxsize


@_Handler
def _end(_number: int) -> None:
    named = ", ".join(find_cut_files()) or "a file that is mapped into memory"
    text = f"Error: {named}: was cut while it was read. Make it again, then start anew.\n"
    os.write(2, os.fsencode(text))
    os._exit(EXIT_BAD_INPUT)
