"""The state of a fit on disk, so that a fit that was stopped goes on and ends the same.

One safetensors file, written atomically and loaded without pickle: weights, optimizer, averages,
the best weights so far, the random number generators, which fit it belongs to, and a seal: the
checksum of all this, without which a damaged byte would make another model and nobody would know.
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
    with replace_file(folder / NAME) as temporary:  # save_file has errors of its own for full disks
        temporary.write_bytes(content)


def load_checkpoint(folder: Path, fit: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What was written for the same `fit`; None where there is nothing, or it is of another one.

    A file that is not what was written counts as none: the fit then starts anew, which costs time
    only.
    """
    path = folder / NAME
    try:
        open_regular(path).close()  # a pipe would never end
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
    """The checksum of tensors with their names, and of a record."""
    digest = hashlib.sha256(record.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of the optimizer's state by name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value)
        for index, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put what `flatten_optimizer` took into an optimizer of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put `prefix` before every name."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name starts with `prefix`, which is taken away."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
