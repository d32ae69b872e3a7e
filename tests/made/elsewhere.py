"""Run a layout net's implementation for other devices on a CPU."""

import pytest

from solution.models.layout import layout_gnn
from solution.models.layout.layout_gnn import DeviceRound


def compute_as_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Replace the operations that are compiled for a CPU by torch's."""
    patch.setattr(layout_gnn, "make_round", DeviceRound)
