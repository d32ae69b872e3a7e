"""What is said where a fit fails for want of something, not for a defect."""

import pytest
import torch

from solution.experiments.base import find_experiment
from solution.system.errors import InputError
from solution.training.failures import name_failure


def test_a_full_gpu_is_one_line_that_says_what_to_do() -> None:
    failing = name_failure(find_experiment("tile_gnn_001"), "training fold 0")
    with (
        pytest.raises(InputError, match="training fold 0.*--workers"),
        failing,
    ):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
