"""Check that a store was prepared in the way that a ranker needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solution.features.preparation import VERSION
from solution.system.errors import InputError
from solution.system.wording import count


def check_preparation(preparation: Mapping[str, Any], needed: int | None, store: Path) -> None:
    """Raise InputError unless the `store` was prepared in the way that a ranker needs.

    This means: by this version of the preparation, without options that only a model may apply to
    its input, and with all nodes within `needed` hops of the configurable nodes (None: all nodes).
    """
    version, kept = preparation.get("version"), preparation.get("hops")
    if version != VERSION:
        raise InputError(
            f"{store}: was prepared in version {version}, expected {VERSION}. Prepare the data "
            "again."
        )
    others = {name: value for name, value in preparation.items() if name not in ("version", "hops")}
    if others:
        raise InputError(
            f"{store}: was prepared with {others!r}, which a model applies by itself. Prepare the "
            "data again."
        )
    is_number = type(kept) is int and kept > 0
    if "hops" not in preparation or not (kept is None or is_number):
        raise InputError(
            f"{store}: keeps {kept!r} hops, expected a positive number or null. Prepare the data "
            "again."
        )
    if kept is not None and (needed is None or kept < needed):
        wanted = "--whole" if needed is None else f"--hops {needed}"
        raise InputError(
            f"{store}: keeps {count(kept, 'hop')} around the configurable nodes, but an experiment "
            f"looks further. Prepare the data with {wanted}."
        )
