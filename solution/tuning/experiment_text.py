"""Write the text of an experiment file, formatted so that the linter accepts it."""

import ast
import dataclasses
import json
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from solution.experiments.base import FROM_FILE, Experiment

WIDTH = 100  # characters per line
STEP = "    "
IMPORTS = (ast.Import, ast.ImportFrom)


def write_experiment(name: str, searched: Experiment, settings: Any, note: str) -> str:
    """Return the text of an experiment file like that of `searched`, with other `settings`. All
    fields are written out, because defaults may change. If a class of the settings is in the user's
    experiment file, which cannot be imported, the text is this file with another EXPERIMENT."""
    fields = {
        "name": name,
        "collections": searched.collections,
        "train_jointly": searched.train_jointly,
        "ranker": settings,
        "seeds": searched.seeds,
    }
    if not searched.train_jointly:
        del fields["train_jointly"]
    text = f"EXPERIMENT = {_call('Experiment', fields, '')}\n"
    kinds = [type(value) for value in (settings, *_walk_nested(settings))]
    named: list[type] = [Experiment, *kinds]
    if not any(_is_own(kind) for kind in named):
        return f'"""{note}"""\n\n{_list_imports(named)}\n\n{text}'
    source = Path(searched.origin).read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    known = {alias.asname or alias.name for node in nodes for alias in node.names}
    missing = [kind for kind in named if not _is_own(kind) and kind.__name__ not in known]
    return _replace_experiment(source, _list_imports(missing), f"# {note}\n{text}")


def _is_own(kind: type) -> bool:
    """Return whether the class is defined in a user's experiment file, which cannot be imported."""
    return kind.__module__.startswith(FROM_FILE)


def _list_imports(named: Iterable[type]) -> str:
    modules: dict[str, set[str]] = {}
    for kind in named:
        modules.setdefault(kind.__module__, set()).add(kind.__qualname__)
    return "\n".join(
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(modules.items())
    )


def _replace_experiment(source: str, imports: str, text: str) -> str:
    """Return the source with `imports` added after its import statements, and its statement of
    EXPERIMENT replaced with `text`."""
    said = [node for node in ast.parse(source).body if _names_experiment(node)]
    old = ast.get_source_segment(source, said[-1]) if said else None
    before, _, after = source.rpartition(old) if old else (f"{source}\n", "", "")
    if imports:
        lines, body = before.split("\n"), ast.parse(before).body
        ends = [node.end_lineno or 0 for node in body if isinstance(node, IMPORTS)]
        end = ends[-1] if ends else len(lines) - 1
        before = "\n".join([*lines[:end], imports, *lines[end:]])
    return f"{before}{text.rstrip()}{after}"


def _names_experiment(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id="EXPERIMENT")]):
            return True
        case ast.AnnAssign(target=ast.Name(id="EXPERIMENT")):
            return True
    return False


def _walk_nested(settings: Any) -> Iterator[Any]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield value
            yield from _walk_nested(value)


def _call(name: str, fields: dict[str, Any], indent: str) -> str:
    """Return the source text of a call with one keyword argument per line."""
    if not fields:
        return f"{name}()"
    inner = indent + STEP
    lines = [
        f"{inner}{key}={_render(value, inner, len(key) + 2)},\n" for key, value in fields.items()
    ]
    return f"{name}(\n{''.join(lines)}{indent})"


def _render(value: Any, indent: str, around: int) -> str:
    """Return a value's source text, wrapped to WIDTH characters. The line is indented by `indent`
    and has `around` further characters beside the value."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _call(type(value).__qualname__, fields, indent)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not isfinite(value):  # inf and nan are no literals of Python
        return f'float("{value}")'
    if isinstance(value, tuple):
        inner = indent + STEP
        items = [_render(item, inner, 1) for item in value]
        line = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if len(indent) + around + len(line) <= WIDTH:
            return line
        return "(\n" + "".join(f"{inner}{item},\n" for item in items) + f"{indent})"
    return repr(value)
