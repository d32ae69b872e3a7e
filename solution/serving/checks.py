"""Check the graphs given to a bundle's models, and the scores that the models return."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from solution.domain.graph import Graph
from solution.serving.record import Member
from solution.system.errors import InputError


def check_configured(graph: Graph) -> None:
    """Raise InputError if a bundle's models do not know this kind of configurations."""
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles to rank, found compile options. Look their "
            "runtimes up with `fastslow choose FILE --replay`, or find better ones with `fastslow "
            "choose PROGRAM --over options`."
        )


def check_scores(scores: np.ndarray, graph: Graph, source: Path, member: Member) -> None:
    """Raise InputError unless there is one finite score per configuration."""
    if scores.shape != (graph.num_configs,) or not np.isfinite(scores).all():
        raise InputError(
            f"{source}: {member.folder} gives no finite score to each of the "
            f"{graph.num_configs} configurations of {graph.name}. Train it again."
        )


@contextmanager
def naming(source: Path, member: Member, what: str) -> Iterator[None]:
    """Turn any error that a library raises on a model's contents into one InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"{source}: {member.folder} {what} ({type(error).__name__}: "
            f"{said or 'it may be of other collections than its record says'})."
        ) from error
