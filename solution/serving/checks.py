"""What is checked before a bundle's model is asked, and of what it answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from solution.domain.graph import Graph
from solution.serving.record import Member
from solution.system.errors import InputError


def check_configured(graph: Graph) -> None:
    """Raise InputError where the graph's configurations are nothing that a bundle's models know."""
    if graph.options is not None:
        raise InputError(
            f"{graph.name}: expected layouts or tiles to rank, found compile options. Look their "
            "runtimes up with `fastslow choose FILE --replay`, or find better ones with `fastslow "
            "choose PROGRAM --over options`."
        )


def check_scores(scores: np.ndarray, graph: Graph, source: Path, member: Member) -> None:
    """Raise InputError unless there is one finite score a configuration."""
    if scores.shape != (graph.num_configs,) or not np.isfinite(scores).all():
        raise InputError(
            f"{source}: {member.folder} gives no finite score to each of the "
            f"{graph.num_configs} configurations of {graph.name}. Train it again."
        )


@contextmanager
def naming(source: Path, member: Member, what: str) -> Iterator[None]:
    """Whatever a library says of contents that were made to look sound is one message."""
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
