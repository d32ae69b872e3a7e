"""Parse the values that `--set NAME=VALUE` gives to the parameters of a notebook.

Values that cannot work are rejected here, because on Kaggle a session would start and then fail.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from solution.domain.collection import NAMES
from solution.experiments import DEFAULTS
from solution.system.errors import InputError
from solution.system.names import match
from submissions.kernels.notebooks import Value, read_parameters

BY_ITSELF = "a push writes it by itself"
# Parameters that --set may not change.
GIVEN_OTHERWISE = {
    "PUSH": BY_ITSELF,
    "COMMIT": BY_ITSELF,
    "BUNDLE": "give --bundle (make: BUNDLE=name), which attaches the bundle as well",
}
SCHEMES, PACKS = ("family", "architecture", "graph"), ("", "folds", "refit")


def parse_values(pairs: Sequence[str], notebook: Mapping[str, Any]) -> dict[str, Value]:
    """Parse NAME=VALUE pairs as the types of the notebook's parameters.

    Raises InputError if there is no such parameter, or the value has another type or cannot work.
    """
    known = read_parameters(notebook)
    values: dict[str, Value] = {}
    for pair in pairs:
        name, is_pair, text = pair.partition("=")
        if not is_pair or name not in known or name in GIVEN_OTHERWISE:
            raise InputError(f"{pair!r}: {_explain_name(name, known)}.")
        values[name] = _parse(name, text, known[name])
    _check({**known, **values})
    return values


def _explain_name(name: str, known: Mapping[str, Value]) -> str:
    free = [parameter for parameter in known if parameter not in GIVEN_OTHERWISE]
    if name in known and name in GIVEN_OTHERWISE:
        return f"{name} cannot be set: {GIVEN_OTHERWISE[name]}"
    if not free:
        return "this notebook has no parameter that can be set"
    return f"expected NAME=VALUE, where NAME is one of {', '.join(free)}"


def _parse(name: str, text: str, default: Value) -> Value:
    try:
        text.encode()  # a lone surrogate, which stands for an invalid byte, cannot be encoded
        if isinstance(default, str):
            return text
        if isinstance(default, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        value = type(default)(text)
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{name}={text}: expected a value such as {default!r} ({type(default).__name__})."
        ) from error
    return value


def _check(values: Mapping[str, Value]) -> None:
    for name, (fits, expected) in EXPECTED.items():
        if name in values and not fits(values):
            raise InputError(f"{name}={values[name]}: expected {expected}.")


def _are_folds(values: Mapping[str, Any]) -> bool:
    try:
        numbers = [int(part) for part in values["FOLDS"].split(",") if part.strip()]
    except ValueError:
        return False
    return all(0 <= number < values["NUM_FOLDS"] for number in numbers)


def _chooses(names: Sequence[str], patterns: str) -> bool:
    try:
        return bool(match(names, patterns))
    except InputError:
        return False


# For each known parameter: a check of the value, and a description of valid ones.
EXPECTED: dict[str, tuple[Callable[[Mapping[str, Any]], bool], str]] = {
    "HOURS": (lambda values: values["HOURS"] >= 0, "0 or more"),
    "NUM_FOLDS": (lambda values: values["NUM_FOLDS"] >= 2, "2 or more"),
    "FOLDS": (_are_folds, "numbers below NUM_FOLDS, such as 0,1, or nothing for all"),
    "SCHEME": (lambda values: values["SCHEME"] in SCHEMES, " or ".join(SCHEMES)),
    "PACK": (lambda values: values["PACK"] in PACKS, "folds, refit or nothing"),
    "EXPERIMENTS": (
        lambda values: _chooses(DEFAULTS, values["EXPERIMENTS"]),
        f"patterns that choose some of {', '.join(DEFAULTS)}",
    ),
    "COLLECTIONS": (
        lambda values: _chooses(NAMES, values["COLLECTIONS"]),
        f"patterns that choose some of {', '.join(NAMES)}",
    ),
}
