"""Name the source of runtimes: measured by a clock, or estimated by a compiler.

The source of an estimate names the target machine and the compiler. Every file stores the
source with the graph.
"""

import re
from collections.abc import Iterable

from solution.system.wording import join_names

TIMED = ""  # measured by a clock; also the source if a file has none
ESTIMATED = "estimated: "
MAX_LENGTH = 200
PATTERN = re.compile(re.escape(ESTIMATED) + r"[ -~]*[!-~]")  # printable ASCII, on one line


def name_estimate(target: str, compiler: str) -> str:
    """Return the source of a compiler's estimates, as "estimated: tpu:v3, libtpu 0.0.42.1"."""
    return f"{ESTIMATED}{target}, {compiler}"


def is_source(text: str) -> bool:
    """Tell if the text is a valid source: TIMED, or the source of an estimate."""
    return text == TIMED or (len(text) <= MAX_LENGTH and PATTERN.fullmatch(text) is not None)


def show_source(source: str) -> str:
    """Return the source as messages show it; "timed" if it is empty."""
    return source or "timed"


def list_estimates(sources: Iterable[str]) -> list[str]:
    """Return the distinct sources of estimates, sorted."""
    return sorted({source for source in sources if source != TIMED})


def warn_of_estimates(sources: Iterable[str]) -> str:
    """Return a sentence that says which labels are estimates; empty if all are timed."""
    found = set(sources)
    estimates = [source.removeprefix(ESTIMATED) for source in list_estimates(found)]
    if not estimates:
        return ""
    some = "Some labels" if TIMED in found else "Labels"
    return f"{some} are a compiler's estimates ({join_names(estimates)}), not measured times."
