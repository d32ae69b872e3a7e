"""Define the settings that `fastslow tune` varies, by name, and their ranges.

Every field with one of these names is searched, in nested settings too. So a new ranker needs no
entry here if it names its settings like the existing ones.

A published student report (rank 239 of 616) searched how many nodes, configurations and graphs a
net learns from, within the limits of its memory. Here a step is divided into parts that fit into
memory (solution.models.nets.training_loop), so larger values cost only time.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from solution.system.errors import InputError

# The ranges of the first five settings, which are for boosted trees, are from the student report.
SPACE: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(1e-2, 2e-1, log=True),
    "num_leaves": IntDistribution(7, 63, log=True),
    "min_data_in_leaf": IntDistribution(5, 100, log=True),
    "feature_fraction": FloatDistribution(0.2, 1.0),
    "lambda_l2": FloatDistribution(1e-2, 1e2, log=True),
    "relevance_levels": IntDistribution(8, 64, log=True),
    "pairs_per_config": IntDistribution(1, 16, log=True),
    "width": CategoricalDistribution((32, 64, 96, 128)),
    "blocks": IntDistribution(1, 4),
    "dropout": FloatDistribution(0.0, 0.5),
    "training.learning_rate": FloatDistribution(3e-4, 1e-2, log=True),
    "training.weight_decay": FloatDistribution(1e-5, 1e-1, log=True),
    "training.loss": CategoricalDistribution(("pairwise_hinge", "list_mle")),
    "training.configs_per_graph": CategoricalDistribution((16, 32, 48, 64)),
    "training.graphs_per_step": CategoricalDistribution((4, 10, 50, 100)),
    "training.max_configs": CategoricalDistribution((20, 100, 500, 1000)),
    "nodes.trained": CategoricalDistribution((100, 200, 500, 1000)),
}


@dataclass(frozen=True)
class Searched:
    """A field of the settings that is searched, with its range."""

    name: str  # prefixed by the names of the enclosing fields, as in training.loss
    distribution: BaseDistribution
    value: Any  # the value that the experiment has now


def find_searched(settings: Any) -> list[Searched]:
    """Return the fields of `settings` that are in SPACE; raise InputError if there is none."""
    found = [
        Searched(name, _with_room_for(SPACE[name], value), value)
        for name, value in _walk_fields(settings)
        if name in SPACE and _is_of_kind(value, SPACE[name])
    ]
    if not found:
        raise InputError(
            f"{type(settings).__name__} has no setting that can be searched. There are "
            f"{', '.join(SPACE)}."
        )
    return found


def _is_of_kind(value: Any, distribution: BaseDistribution) -> bool:
    """Return whether the value has the distribution's type; else the field is not searched."""
    match distribution:
        case FloatDistribution():
            return type(value) in (int, float) and isfinite(value)
        case IntDistribution():
            return type(value) is int
        case CategoricalDistribution() as d:
            return value is None or type(value) in {type(choice) for choice in d.choices}
    return False


def _with_room_for(distribution: BaseDistribution, value: Any) -> BaseDistribution:
    """Return the distribution, extended if necessary to include the current value."""
    match distribution:
        case FloatDistribution() | IntDistribution() as d:
            low, high = min(d.low, value), max(d.high, value)
            return type(d)(low, high, log=d.log and low > 0)
        case CategoricalDistribution() as d:
            choices = d.choices if value in d.choices else (*d.choices, value)
            return CategoricalDistribution(choices)
    return distribution


def plain_value(item: Searched, value: Any) -> Any:
    """Return `value`, rounded to four significant digits if it is a float that the search drew."""
    is_drawn = isinstance(value, float) and value != item.value
    return float(f"{value:.4g}") if is_drawn else value


def with_values(settings: Any, values: dict[str, Any]) -> Any:
    """Return a copy of `settings` with `values`, by field name, nested as "training.loss"."""
    replaced = {name: value for name, value in values.items() if "." not in name}
    for outer in {name.split(".")[0] for name in values if "." in name}:
        inner = {
            name.removeprefix(f"{outer}."): value
            for name, value in values.items()
            if name.startswith(f"{outer}.")
        }
        replaced[outer] = with_values(getattr(settings, outer), inner)
    return dataclasses.replace(settings, **replaced)


def _walk_fields(settings: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from _walk_fields(value, f"{before}{field.name}.")
        else:
            yield before + field.name, value
