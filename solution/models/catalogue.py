"""Save and load models, and list the kinds of models that may be loaded.

    MODEL/
        model.json     format, kind, settings, seed, preparation, checksums of the other files
        ...            the fitted state, as the ranker's `save` writes it

The kind of a model, such as "ridge", stands for the class of its settings. Kinds are looked up in a
table of this file; a module named in a model's file is never imported. A ranker that a user wrote
has the kind "own:NAME" and is loaded only if the user names the experiment that defines it.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError

from solution.domain.graph import Graph
from solution.features.preparation import VERSION, Preparation
from solution.models.base import Ranker, RankerSettings
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.sealing import check_files, list_checksums, read_record

RECORD, FORMAT = "model.json", 1
OWN = "own:"  # prefix of the kind of a ranker that a user wrote

# Kind -> settings class. A class is imported only when its kind is needed.
OURS = {
    "nothing": "solution.models.nothing.NothingSettings",
    "least_squares": "solution.models.linear.OrdinarySettings",
    "ridge": "solution.models.linear.RidgeSettings",
    "lasso": "solution.models.linear.LassoSettings",
    "lambdarank": "solution.models.trees.lightgbm_ranker.LightGBMSettings",
    "pointwise": "solution.models.trees.lightgbm_ranker.PointwiseSettings",
    "layout_net": "solution.models.layout.layout_gnn.LayoutGnnSettings",
    "cost_net": "solution.models.layout.cost_net.CostNetSettings",
    "cost_kernel": "solution.models.layout.cost_kernel.CostKernelSettings",
    "tile_net": "solution.models.tile.tile_gnn.TileGnnSettings",
    "compiler": "solution.experiments.layout_compiler_001.CompilerSettings",
}
# packages with more kinds of models (mapping KINDS) and experiments (subpackage `experiments`)
ADDED = ("solution.papers",)
_PATHS = dict(OURS)
for _name in ADDED:
    _PATHS |= importlib.import_module(_name).KINDS
KINDS = tuple(_PATHS)


@dataclass(frozen=True)
class Model:
    """A fitted ranker, and the preparation that graphs need before it scores them."""

    ranker: Ranker
    settings: RankerSettings
    seed: int
    preparation: Preparation

    def predict(self, graph: Graph) -> np.ndarray:
        """Prepare a graph and return scores (num_configs,) float32 of its configurations; lower is
        faster. The graph must have all nodes that the ranker needs."""
        return self.ranker.predict(self.preparation(graph))


def kind_of(settings: RankerSettings) -> str:
    """Return the kind of these settings: a key of the table, or "own:NAME" for a user's class."""
    where = f"{type(settings).__module__}.{type(settings).__qualname__}"
    for kind, path in _PATHS.items():
        if where == path:
            return kind
    return OWN + type(settings).__qualname__


def describe_settings(settings: RankerSettings) -> dict[str, Any]:
    """Return {"kind": ..., "settings": fields by name} as JSON values. Raises InputError if a
    field cannot be written as JSON."""
    described = {
        name: describe_settings(value) if isinstance(value, RankerSettings) else _plain(value)
        for name, value in ((name, getattr(settings, name)) for name in _names(type(settings)))
    }
    try:
        json.dumps(described)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{type(settings).__qualname__}: expected settings of plain values (numbers, words, "
            f"tuples, dataclasses), but: {error}."
        ) from error
    return {"kind": kind_of(settings), "settings": described}


def read_settings(
    record: Mapping[str, Any], users: Sequence[RankerSettings] = ()
) -> RankerSettings:
    """Restore settings from a `record` that `describe_settings` returned. Their class is a built-in
    class or a class of `users`. Raises InputError if the class or a field is not valid."""
    kind = record.get("kind")
    found = _find_class(kind, users)
    values = record.get("settings")
    names = _names(found)
    if not isinstance(values, Mapping) or set(values) != set(names):
        raise InputError(f"kind {kind!r}: expected the settings {names}, found {values!r}.")
    hints = get_type_hints(found)
    try:
        return found(**{name: _read_value(hints[name], values[name], users) for name in names})
    except (ValidationError, ValueError, TypeError) as error:
        raise InputError(f"kind {kind!r}: settings that it cannot have: {error}") from error


def save_model(ranker: Ranker, settings: RankerSettings, seed: int, folder: Path) -> None:
    """Write a fitted ranker into an existing folder: its files, and model.json about them."""
    ranker.save(folder)
    preparation = settings.preparation.describe()
    record = {**describe_settings(settings), "seed": seed, "preparation": preparation}
    write_sealed({"format": FORMAT, **record, "files": list_checksums(folder)}, folder / RECORD)


def load_model(folder: Path, users: Sequence[RankerSettings] = ()) -> Model:
    """Load a model; `users` are settings of a user's experiments. Raises InputError if the folder
    has no model, or the model is damaged, of an unknown kind, or made for graphs that were prepared
    in another way."""
    path = folder / RECORD
    record = read_record(path, "a model")
    check_files(folder, record.get("files"), path)
    if record.get("format") != FORMAT:
        raise InputError(f"{path}: has format {record.get('format')!r}, expected {FORMAT}.")
    try:
        settings = read_settings(record, users)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    preparation, seed = settings.preparation, record.get("seed")
    if record.get("preparation") != preparation.describe() or not isinstance(seed, int):
        raise InputError(
            f"{path}: its graphs were prepared as {record.get('preparation')!r}, expected "
            f"{preparation.describe()} (version {VERSION} is this program's). Train it again."
        )
    return Model(settings.build(seed).load(folder), settings, seed, preparation)


def _find_class(kind: object, users: Sequence[RankerSettings]) -> type[RankerSettings]:
    if isinstance(kind, str) and kind in _PATHS:
        module, _, name = _PATHS[kind].rpartition(".")
        found: type[RankerSettings] = vars(importlib.import_module(module))[name]
        return found
    for settings in users:
        if kind == kind_of(settings):
            return type(settings)
    raise InputError(
        f"kind {kind!r} is not known. There are {', '.join(KINDS)}; a model from a user's file is "
        "loaded with the experiment in that file."
    )


def _names(kind: type[RankerSettings]) -> list[str]:
    """Return the field names of a settings class; an empty list if it is no dataclass."""
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def _read_value(hint: Any, value: Any, users: Sequence[RankerSettings]) -> Any:
    if hint is RankerSettings:
        return read_settings(value, users)
    return _adapter(hint).validate_python(value)


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)  # cached, because making an adapter takes milliseconds


def _plain(value: Any) -> Any:
    """Return the value as JSON would restore it: dataclasses as mappings, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
