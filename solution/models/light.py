"""Load models that predict in numpy, without torch or LightGBM.

Distilled bundles (packages of models) consist of such models. solution.models.catalogue describes
the files. Only kinds of nets that are keys of KINDS can be loaded here. Scores equal torch's scores
up to rounding.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from safetensors.numpy import load_file

from solution.domain.graph import Graph
from solution.features.nodes import Scaler
from solution.features.preparation import Preparation
from solution.models.catalogue import RECORD
from solution.models.nets.forward import Scalers, Weights
from solution.models.settings import MAX_DEPTH
from solution.system.errors import InputError
from solution.system.sealing import check_files, read_record

# WEIGHTS: file of a net's tensors. NET, SCALER: how names of weights and of scalers begin in it.
WEIGHTS, NET, SCALER = "weights.safetensors", "net.", "scaler."


class Scorer(Protocol):
    """The part of a fitted Ranker (solution.models.base) that prediction uses. This is not the
    scorer of the glossary, which is a session."""

    scores_beside_a_list: bool  # see Ranker.scores_beside_a_list

    def predict(self, graph: Graph) -> np.ndarray:
        """Return scores (num_configs,) float32, finite; lower is faster."""
        ...


@dataclass(frozen=True)
class LightModel:
    """A fitted ranker, and the preparation that graphs need before it scores them."""

    ranker: Scorer
    preparation: Preparation


# Kind of model -> class that predicts in numpy. A class is imported only when its kind is needed.
KINDS = {
    "layout_net": "solution.models.layout.layout_forward.LayoutForward",
    "tile_net": "solution.models.tile.tile_forward.TileForward",
}


def load_light(folder: Path) -> LightModel:
    """Load a model without torch; InputError if it is damaged or of a kind that needs torch."""
    path = folder / RECORD
    record = read_record(path, "a model")
    check_files(folder, record.get("files"), path)
    kind, settings = record.get("kind"), record.get("settings")
    if kind not in KINDS or not isinstance(settings, Mapping):
        raise InputError(f"{path}: is of the kind {kind!r}, expected one of {', '.join(KINDS)}.")
    preparation = record.get("preparation")
    hops = preparation.get("hops") if isinstance(preparation, Mapping) else -1
    if hops is not None and not (isinstance(hops, int) and 0 <= hops <= MAX_DEPTH):
        raise InputError(f"{path}: its graphs keep {hops!r} hops, expected 0 to {MAX_DEPTH}.")
    module, _, name = KINDS[kind].rpartition(".")
    make: Callable[..., Scorer] = vars(importlib.import_module(module))[name]
    return LightModel(make(settings, *read_weights(folder)), Preparation(hops))


def read_weights(folder: Path) -> tuple[Weights, Scalers]:
    """Return a net's weights by parameter, and the scalers of its feature tables by table."""
    tensors = load_file(folder / WEIGHTS)
    weights = {
        name.removeprefix(NET): np.ascontiguousarray(tensor, np.float32)
        for name, tensor in tensors.items()
        if name.startswith(NET)
    }
    names = {name.split(".")[1] for name in tensors if name.startswith(SCALER)}
    scalers = {
        name: Scaler(tensors[f"{SCALER}{name}.mean"], tensors[f"{SCALER}{name}.scale"])
        for name in names
    }
    return weights, scalers
