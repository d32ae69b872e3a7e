"""Rank the compiler configurations of a tensor program from fastest to slowest.

from solution import load_bundle, load_run, read_graph

ranking = load_bundle("BUNDLE").rank(read_graph("FILE.npz"))
ranking.order, ranking.to_measure

A file with your ranker begins with `from solution import Experiment, TableSettings`.
"""

import os
from typing import TYPE_CHECKING, Any

from solution.system.numba_cache import choose_cache

# With this variable, torch's large tensors get pages of 2 MB on Linux, which saves a fifth of the
# time of a training step.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
choose_cache()

if TYPE_CHECKING:
    from solution.experiments.base import Experiment
    from solution.models.table_ranker import TableSettings
    from solution.serving.bundle import load_bundle, load_run
    from solution.serving.reading import read_graph
    from solution.system.errors import InputError

__all__ = ["Experiment", "InputError", "TableSettings", "load_bundle", "load_run", "read_graph"]

_MODULES = {
    "Experiment": "experiments.base",
    "InputError": "system.errors",
    "TableSettings": "models.table_ranker",
    "load_bundle": "serving.bundle",
    "load_run": "serving.bundle",
    "read_graph": "serving.reading",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562), so that `import solution` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"solution.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
