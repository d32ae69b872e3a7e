"""What a layout net computes on any device but a CPU, on a CPU."""

import pytest

from solution.models.layout import layout_gnn
from solution.models.layout.layout_gnn import DeviceRound


def compute_as_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Take torch's operations where a CPU has compiled ones."""
    patch.setattr(layout_gnn, "make_round", DeviceRound)
