"""Validate the settings of rankers when the settings are created.

Otherwise a wrong value would be noticed after minutes of preparation, or never.
"""

from collections.abc import Callable, Collection
from typing import Any

from solution.system.errors import InputError
from solution.system.names import suggest

MAX_WIDTH, MAX_DEPTH = 8192, 64  # maximum width of a layer, and maximum number of layers
SIZES = {  # largest value of each setting that is a size of a net
    "width": MAX_WIDTH,
    "rounds": MAX_DEPTH,
    "blocks": MAX_DEPTH,
    "heads": MAX_DEPTH,
    "head_width": MAX_WIDTH,
    "hops": MAX_DEPTH,
}


def check_choice(setting: str, value: object, choices: Collection[str | None]) -> None:
    """Raise InputError if the value of a setting is not one of `choices`."""
    known = tuple(choices)  # a tuple, because `value` may not be hashable
    if value in known:
        return
    meant = suggest(str(value), [name for name in known if name is not None])
    raise _wrong(setting, value, f"one of {', '.join(map(str, known))}", meant)


def check_even_widths(setting: str, value: Any) -> None:
    """Raise InputError unless the value is a tuple of one or more even widths."""
    if not _holds(value, lambda x: isinstance(x, int) and 0 < x <= MAX_WIDTH and x % 2 == 0):
        raise _wrong(setting, value, "a tuple of one even width or more, such as (64, 64)")


def check_penalties(setting: str, value: Any) -> None:
    """Raise InputError unless the value is a tuple of one or more numbers, none below 0."""
    if not _holds(value, lambda x: isinstance(x, (int, float)) and x >= 0):  # rejects NaN too
        raise _wrong(
            setting, value, "a tuple of one number or more, none below 0, such as (0.1, 1.0)"
        )


def check_net(settings: object) -> None:
    """Raise InputError if a net of these settings would be too large. The settings may come from an
    untrusted file."""
    for name, most in SIZES.items():
        value = getattr(settings, name, None)
        if isinstance(value, int):
            check_size(name, value, most, least=0)


def check_size(setting: str, value: int, most: int, least: int = 1) -> None:
    """Raise InputError unless the value is a number from `least` to `most`."""
    if not least <= value <= most:
        raise _wrong(setting, value, f"a number from {least} to {most:,}")


def _holds(value: Any, is_right: Callable[[Any], bool]) -> bool:
    """Return True if the value is a tuple of 1 to MAX_DEPTH entries that all pass `is_right`."""
    return isinstance(value, tuple) and 0 < len(value) <= MAX_DEPTH and all(map(is_right, value))


def _wrong(setting: str, value: object, expected: str, meant: str = "") -> InputError:
    return InputError(
        f"{setting} is {value!r}, expected {expected}.{meant} Change the settings of the "
        "experiment."
    )
