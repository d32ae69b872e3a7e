"""Rank the compiler configurations of a tensor program from fastest to slowest.

from solution import load_bundle, load_run, read_graph

ranking = load_bundle("BUNDLE").rank(read_graph("FILE.npz"))
ranking.order[: ranking.measure]
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solution.serving.bundle import load_bundle, load_run
    from solution.serving.reading import read_graph

__all__ = ["load_bundle", "load_run", "read_graph"]

_PLACES = {"load_bundle": "bundle", "load_run": "bundle", "read_graph": "reading"}


def __getattr__(name: str) -> Any:
    """What is asked for is imported then (PEP 562): `import solution` itself takes no time."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"solution.serving.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
