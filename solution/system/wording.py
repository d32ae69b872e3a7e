"""Write durations, ratios, counts and lists in words."""

from collections.abc import Sequence

MAX_NAMES = 20


def spell(seconds: float) -> str:
    """Return a duration in words: 0.4 s, 12 s, 3 min 5 s, 1 h 20 min."""
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def compare_times(ratio: float) -> str:
    """Return a ratio of durations, for a sentence on what takes it, in words: 1.15 times as long,
    0.3% more time, as long."""
    if ratio == 1:
        return "as long"
    if f"{ratio:.2f}" != "1.00":
        return f"{ratio:.2f} times as long"
    return f"{100 * abs(ratio - 1):.2g}% {'more' if ratio > 1 else 'less'} time"


def count(number: int, name: str) -> str:
    """Return a number with its noun: 1 graph, 1,200 graphs."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def shorten(text: str, width: int) -> str:
    """Return the text, cut to `width` characters with three dots at the end if it is longer."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra from a clone; no package index has this project."""
    return f'In the project\'s folder, pip install -c constraints.txt -e ".[{extra}]"'


def join_names(names: Sequence[object], most: int = MAX_NAMES) -> str:
    """Return the first `most` names, joined by commas, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
