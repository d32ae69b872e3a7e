"""On which device a net computes, how precisely, and with how many threads."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it greets every fit


def pick_device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_fabric() -> Fabric:
    """The device of `pick_device`, with bfloat16 products where it has them."""
    return Fabric(accelerator=pick_device().type, devices=1, precision=pick_precision())


def pick_precision() -> Literal["bf16-mixed", "32-true"]:
    """bfloat16 products on a GPU that has them."""
    is_gpu = pick_device().type == "cuda"
    is_half = is_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if is_half else "32-true"


@contextmanager
def one_thread() -> Iterator[None]:
    """Fit and predict with one thread: weights and scores do not depend on how many there are.

    Models are fitted beside each other instead, a core each.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def send(values: np.ndarray, device: torch.device) -> Tensor:
    """The values on a device. The sender does not wait: a GPU is still at what it was given."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":  # from memory that may be swapped out it would wait all the same
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def take_rows(tensors: Sequence[Tensor], rows: np.ndarray) -> list[Tensor]:
    """Of each tensor the rows of its column of `rows` (n, tensors).

    They are sent together: a tensor that is indexed by an array waits for the device, each alone.
    """
    sent = send(rows, tensors[0].device)
    return [tensor[sent[:, place]] for place, tensor in enumerate(tensors)]


def move_inputs(inputs: Any, device: Any) -> Any:
    """What a net takes of a graph, a frozen dataclass, its tensors on another device."""
    values = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    return replace(inputs, **{name: tensor.to(device) for name, tensor in tensors.items()})
