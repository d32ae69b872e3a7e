"""Choose the device, precision and number of threads of a net."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it logs a greeting for every fit


def pick_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_fabric() -> Fabric:
    """Return a Fabric on the device of `pick_device`, with the precision of `pick_precision`."""
    return Fabric(accelerator=pick_device().type, devices=1, precision=pick_precision())


def pick_precision() -> Literal["bf16-mixed", "32-true"]:
    """Return Fabric's precision: bfloat16 matrix products on a GPU that has them, else float32."""
    is_gpu = pick_device().type == "cuda"
    is_half = is_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if is_half else "32-true"


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one CPU thread inside the `with` block, so that results do not depend on the
    number of threads, and the other cores can fit other models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def send(values: np.ndarray, device: torch.device) -> Tensor:
    """Return the array as a tensor on a device; copying to a GPU goes on after the return."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":  # only copies from pinned memory are asynchronous
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def take_rows(tensors: Sequence[Tensor], rows: np.ndarray) -> list[Tensor]:
    """Return the rows rows[:, i] of each tensor i; `rows` (n, tensors) goes to the device in one
    copy, because indexing with numpy arrays would wait for the device each time."""
    sent = send(rows, tensors[0].device)
    return [tensor[sent[:, column]] for column, tensor in enumerate(tensors)]


def move_inputs(inputs: Any, device: Any) -> Any:
    """Return a copy of `inputs`, a frozen dataclass, with all tensors in it moved to `device`."""
    values = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    return replace(inputs, **{name: tensor.to(device) for name, tensor in tensors.items()})
