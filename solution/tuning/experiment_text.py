"""The text of an experiment file, as people would write it: the lint step finds nothing in it."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from solution.experiments.base import Experiment

WIDTH = 100  # characters of a line
STEP = "    "


def write_experiment(name: str, searched: Experiment, settings: Any, note: str) -> str:
    """An experiment like the one that was searched, with these settings, all of them written out.

    A default that is changed later does not change what was found.
    """
    fields = {
        "name": name,
        "collections": searched.collections,
        "train_jointly": searched.train_jointly,
        "ranker": settings,
        "seeds": searched.seeds,
    }
    if not searched.train_jointly:
        del fields["train_jointly"]
    return (
        f'"""{note}"""\n\n{_list_imports(settings)}\n\n'
        f"EXPERIMENT = {_call('Experiment', fields, '')}\n"
    )


def _list_imports(settings: Any) -> str:
    places: dict[str, set[str]] = {Experiment.__module__: {Experiment.__qualname__}}
    for value in (settings, *_walk_nested(settings)):
        places.setdefault(type(value).__module__, set()).add(type(value).__qualname__)
    return "\n".join(
        f"from {place} import {', '.join(sorted(names))}" for place, names in sorted(places.items())
    )


def _walk_nested(settings: Any) -> Iterator[Any]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield value
            yield from _walk_nested(value)


def _call(name: str, fields: dict[str, Any], indent: str) -> str:
    """A call with a line for each argument."""
    if not fields:
        return f"{name}()"
    inner = indent + STEP
    lines = [
        f"{inner}{key}={_render(value, inner, len(key) + 2)},\n" for key, value in fields.items()
    ]
    return f"{name}(\n{''.join(lines)}{indent})"


def _render(value: Any, indent: str, around: int) -> str:
    """A value as it is written behind `around` characters, the comma behind it among them."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _call(type(value).__qualname__, fields, indent)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        inner = indent + STEP
        items = [_render(item, inner, 1) for item in value]
        line = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if len(indent) + around + len(line) <= WIDTH:
            return line
        return "(\n" + "".join(f"{inner}{item},\n" for item in items) + f"{indent})"
    return repr(value)
