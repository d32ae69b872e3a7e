"""Where numba keeps what it has compiled.

It compiles a function anew where the function's own file has changed, and not where what that calls
has, which stands in other files here: after an update a simulator would go on by rules that are no
longer in its source. So each state of the sources has a folder of its own. Those of earlier states
stay until __pycache__ is removed; where it cannot be written to, numba has a place of its own.
"""

import os
import sys
from pathlib import Path
from zlib import crc32

PACKAGE = Path(__file__).parent.parent
# All that is compiled, and the numbers that it has from elsewhere.
SOURCES = ("domain", "features/layout", "features/propagation", "models/layout",
           "placement/baselines", "placement/graphs", "placement/simulation")  # fmt: skip


def choose_cache() -> None:
    """Tell numba, unless the user has told it already, and all that is begun from here."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(find_cache())
    if numba := sys.modules.get("numba"):  # which read the environment when it was imported
        numba.config.reload_config()


def find_cache(package: Path = PACKAGE) -> Path:
    """The folder of this state of the sources."""
    state = 0
    for folder in SOURCES:
        for source in sorted((package / folder).glob("*.py")):
            state = crc32(source.name.encode() + b"\0" + source.read_bytes(), state)
    return package / "__pycache__" / f"numba-{state:08x}"
