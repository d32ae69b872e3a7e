"""What a layout net computes on any device but a CPU, on a CPU."""

import pytest

from solution.models.layout import computation
from solution.models.layout.computation import DevicePooling, DeviceRound


def compute_as_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Take torch's operations where a CPU has compiled ones."""
    patch.setattr(computation, "make_round", DeviceRound)
    patch.setattr(computation, "make_pooling", DevicePooling)
