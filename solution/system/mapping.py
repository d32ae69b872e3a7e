"""Say which file was cut while it was mapped into memory, instead of being ended without a word.

The system sends SIGBUS to a process that reads a page of a mapped file which is no longer there. No
handler of Python's could answer it, for Python calls those later, and the reading never gets on. So
this one is called at once, by the C library, and ends the process.

Our own programs never cut a file, they replace it, and who has mapped the old one keeps it.
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
    """From now on SIGBUS ends the process with one message and exit code 2 (on Linux)."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.signal.argtypes = (ctypes.c_int, _Handler)
        library.signal(signal.SIGBUS, _end)


def find_cut_files() -> list[str]:
    """The mapped files that are shorter than what is mapped of them."""
    found = []
    for line in MAPS.read_text(errors="surrogateescape").splitlines():
        place, rights, offset, _, _, *path = line.split(maxsplit=5)
        if path and path[0].startswith("/") and rights.endswith("s"):  # no library
            first, last = (int(address, 16) for address in place.split("-"))
            pages = -(-_size(path[0]) // PAGE)
            if pages * PAGE < int(offset, 16) + last - first:
                found.append(path[0])
    return list(dict.fromkeys(found))


def _size(path: str) -> int:
    """Of a file that was deleted it cannot be told: as large as any."""
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
