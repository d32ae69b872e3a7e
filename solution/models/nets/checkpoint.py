"""Save the state of a fit to disk, so that a stopped fit resumes and ends the same.

The state is one safetensors file, written atomically and loaded without pickle: weights, optimizer,
averages, the best weights so far, random number generators, the identity of the fit, and a checksum
of all this. Without the checksum a damaged byte would change the model and nobody would know.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from solution.system.errors import InputError
from solution.system.files import open_regular, replace_file

NAME = "checkpoint.safetensors"
RECORD, SEAL = "record", "seal"


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a record of JSON values into an existing folder."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(record)
    content = save(contiguous, {RECORD: text, SEAL: seal_tensors(contiguous, text)})
    # save_file reports full disks by errors of its own type
    with replace_file(folder / NAME) as temporary:
        temporary.write_bytes(content)


def load_checkpoint(folder: Path, fit: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the state that was saved for the same `fit`; None if there is none.

    A damaged file counts as none: the fit starts from the beginning, which only costs time.
    """
    path = folder / NAME
    try:
        open_regular(path).close()  # reading a pipe would block forever
        with safe_open(path, framework="pt") as file:
            facts = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if facts[SEAL] != seal_tensors(tensors, facts[RECORD]):
            return None
    except (InputError, OSError, MemoryError, SafetensorError, LookupError, TypeError, ValueError):
        return None
    except RuntimeError:  # of torch
        return None
    record = json.loads(facts[RECORD])
    return (tensors, record) if record.get("fit") == fit else None


def seal_tensors(tensors: dict[str, Tensor], record: str) -> str:
    """Return the checksum of named tensors and of a record."""
    digest = hashlib.sha256(record.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of the optimizer's state by name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value)
        for index, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore the state from `flatten_optimizer` in an optimizer of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with `prefix` before every name."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name starts with `prefix`, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
