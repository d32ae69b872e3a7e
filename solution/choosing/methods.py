"""Find an optimizer by name: this project's, and the baselines that it is compared with."""

from collections.abc import Callable

from solution.choosing.evolution import Annealing, Beam, CrossEntropy, Genetic
from solution.choosing.guided import Beliefs, ByOrder, Guided
from solution.choosing.proposer import Prior, Proposer, RandomSearch
from solution.choosing.space import Space
from solution.system.errors import InputError
from solution.system.names import suggest

OURS, ORDER, PROCESS = "ours", "order", "gaussian-process"
LED = (OURS, ORDER)

Build = Callable[[Space, Prior | None, Beliefs, int], Proposer]


def check_method(name: str) -> str:
    """Return the name; raise InputError if it is no optimizer's."""
    if name not in METHODS:
        raise InputError(
            f"--search {name}: there is none of this name.{suggest(name, METHODS)} "
            f"Give one of {', '.join(METHODS)}."
        )
    return name


def is_led(name: str) -> bool:
    """Return True if a model guides this optimizer."""
    return name in LED


def describe_unled(name: str) -> str:
    """Return a note on an optimizer that no model guides."""
    return f"Searched by {name}, which no model leads."


def make_proposer(
    name: str, space: Space, prior: Prior | None, beliefs: Beliefs, seed: int
) -> Proposer:
    """Return a new optimizer by its name.

    Args:
        prior: the model's scores; None if there is no model for the space.
        beliefs: prior weights, used by this project's optimizer.

    Raises InputError if the optimizer needs a model and there is none.
    """
    return METHODS[name](space, prior, beliefs, seed)


def _build_order(space: Space, prior: Prior | None, beliefs: Beliefs, seed: int) -> Proposer:
    if prior is None:
        raise InputError(
            f"--search {ORDER} follows the model alone, and of what is chosen there is none. "
            f"Leave --search out, or give another: {', '.join(METHODS)}."
        )
    return ByOrder(space, seed, prior)


def _build_tpe(space: Space, prior: Prior | None, beliefs: Beliefs, seed: int) -> Proposer:
    from solution.choosing.libraries import Tpe  # optuna is slow to import

    return Tpe(space, seed)


def _build_process(space: Space, prior: Prior | None, beliefs: Beliefs, seed: int) -> Proposer:
    from solution.choosing.libraries import Process

    return Process(space, seed)


METHODS: dict[str, Build] = {
    OURS: lambda space, prior, beliefs, seed: Guided(space, seed, prior, beliefs),
    ORDER: _build_order,
    "random": lambda space, prior, beliefs, seed: RandomSearch(space, seed),
    "genetic": lambda space, prior, beliefs, seed: Genetic(space, seed),
    "annealing": lambda space, prior, beliefs, seed: Annealing(space, seed),
    "beam": lambda space, prior, beliefs, seed: Beam(space, seed),
    "cross-entropy": lambda space, prior, beliefs, seed: CrossEntropy(space, seed),
    "tpe": _build_tpe,
    PROCESS: _build_process,
}
