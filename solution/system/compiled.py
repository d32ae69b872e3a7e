"""Where numba keeps what it has compiled.

It compiles a function anew where the function's own file has changed, and not where what that calls
has, which stands in other files here: after an update a simulator would go on by rules that are no
longer in its source. So each state of the sources has a folder of its own. Those of earlier states
stay until __pycache__ is removed; where it cannot be written to, numba has a place of its own.
"""

import os
from zlib import crc32

PACKAGE = os.path.dirname(os.path.dirname(__file__))
# All that is compiled, and the numbers that it has from elsewhere.
SOURCES = ("features/propagation", "placement/baselines", "placement/graphs",
           "placement/simulation")  # fmt: skip


def find_cache(package: str = PACKAGE) -> str:
    """The folder of this state of the sources."""
    state = 0
    for folder in SOURCES:
        for name in sorted(os.listdir(os.path.join(package, folder))):
            if name.endswith(".py"):
                with open(os.path.join(package, folder, name), "rb") as file:
                    state = crc32(name.encode() + b"\0" + file.read(), state)
    return os.path.join(package, "__pycache__", f"numba-{state:08x}")
