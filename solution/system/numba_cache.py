"""Choose the folder in which numba caches compiled functions, and say when it compiles.

Numba recompiles a function if its file has changed, but not if a function it calls, in another
file, has changed. After an update a simulator would then keep using old code. So the cache folder
is keyed by a hash of the sources. Folders of earlier sources stay until __pycache__ is removed. If
__pycache__ cannot be written to, numba uses its default folder.
"""

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

PACKAGE = Path(__file__).parent.parent
# Folders with compiled functions, and with the constants that these functions import.
SOURCES = ("domain", "features/layout", "features/propagation", "models/layout",
           "placement/baselines", "placement/graphs", "placement/simulation")  # fmt: skip


def choose_cache() -> None:
    """Set numba's cache folder for this process and its children, unless the user has set one."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(find_cache())
    # numba reads the environment when it is imported, so an imported numba must read it again.
    if numba := sys.modules.get("numba"):
        numba.config.reload_config()


def find_cache(package: Path = PACKAGE) -> Path:
    """Return the cache folder, whose name contains a hash of the current sources."""
    state = 0
    for folder in SOURCES:
        for source in sorted((package / folder).glob("*.py")):
            state = crc32(source.name.encode() + b"\0" + source.read_bytes(), state)
    return package / "__pycache__" / f"numba-{state:08x}"


@cache
def announce_compiling() -> None:
    """From now on, if numba compiles a function, say so once, on a terminal: it compiles when what
    is compiled is first used, and a command seems to do nothing meanwhile. Worker processes say
    nothing."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        return
    from numba.core import event

    from solution.system.progress import console

    class Announcer(event.Listener):
        is_new = True

        def on_start(self, event: Any) -> None:
            if self.is_new and console.is_terminal:
                self.is_new = False
                console.print(
                    "Compiling for this machine, once after an installation or an update: "
                    "up to a minute."
                )

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Announcer())
