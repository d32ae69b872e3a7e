"""Save the state of a fit to disk, so that a stopped fit can resume and ends with the same weights.

The state is one safetensors file, written atomically and loaded without pickle: weights, optimizer,
state that the net keeps besides its weights ("memory"), the best weights so far, random number
generators, the identity of the fit (a text of settings, seed and graphs), and a checksum of all of
it. Without the checksum, a damaged byte would change the model unnoticed.
"""

import copy
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from solution.system.errors import InputError
from solution.system.files import open_regular, write_bytes

NAME = "checkpoint.safetensors"
RECORD, SEAL = "record", "seal"  # entries of the file's metadata: JSON values, and the checksum
SECONDS_BETWEEN = 20.0  # minimum number of seconds between two checkpoints
# names of tensors in the file; with a dot at the end, prefixes of their names
NET, OPTIMIZER, BEST, MEMORY = "net.", "optimizer.", "best.", "memory."
TORCH_RANDOM, GPU_RANDOM = "random.torch", "random.gpu"
ORDER, DRAWN = "order", "drawn."


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a record of JSON values into a folder's file NAME, with a checksum."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(record)
    content = save(contiguous, {RECORD: text, SEAL: seal_tensors(contiguous, text)})
    # not safetensors' save_file, which reports a full disk by another type of error
    write_bytes(content, folder / NAME)


def load_checkpoint(folder: Path, fit: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the saved tensors and record of the fit with the identity `fit`. Return None, so that
    the fit starts from the beginning, if the file is missing, damaged or of another fit."""
    path = folder / NAME
    try:
        open_regular(path).close()  # reject pipes: reading one would block forever
        with safe_open(path, framework="pt") as file:
            facts = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if facts[SEAL] != seal_tensors(tensors, facts[RECORD]):
            return None
    except (InputError, OSError, MemoryError, SafetensorError, LookupError, TypeError, ValueError):
        return None
    except RuntimeError:  # the type of torch's errors, for instance about a damaged tensor
        return None
    record = json.loads(facts[RECORD])
    return (tensors, record) if record.get("fit") == fit else None


def seal_tensors(tensors: dict[str, Tensor], record: str) -> str:
    """Return the SHA-256 of a record and of tensors: names, types, shapes and bytes."""
    digest = hashlib.sha256(record.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as tensors named "INDEX OF THE PARAMETER.NAME OF THE VALUE"."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value)
        for index, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the tensors of `flatten_optimizer` into an optimizer of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with `prefix` before every name."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name starts with `prefix`, under their names without the prefix."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


@runtime_checkable
class Remembering(Protocol):
    """A net that keeps state besides its weights, which a checkpoint must save as well."""

    def memory(self) -> dict[str, Tensor]:
        """Return the state that the net keeps between training steps besides its weights."""
        ...

    def recall(self, memory: dict[str, Tensor]) -> None:
        """Restore the state that `memory` returned."""
        ...


class FitState:
    """The state from which a stopped fit resumes: weights, optimizer, position in the epoch, random
    numbers. `net` is trained in place; only a checkpoint of the same identity `fit` is resumed."""

    def __init__(
        self, net: nn.Module, optimizer: torch.optim.Optimizer, seed: int, fit: str
    ) -> None:
        self.epoch = 0
        self.epochs_since_best = 0
        # One entry for each validation: epochs done, validation score, other measures by name.
        self.history: list[tuple[int, float, dict[str, float]]] = []
        # the current epoch's graphs (visits,) in training order; None before an epoch
        self.order: np.ndarray | None = None
        # loss of each step of the epoch so far: a number, or a tensor that may be on the device
        self.losses: list[float | Tensor] = []
        # configurations (graphs, configs) that are drawn for training steps not taken yet
        self.drawn: list[np.ndarray] = []
        self.generator = np.random.default_rng(seed)
        self._net, self._optimizer, self._fit = net, optimizer, fit
        self._best_score = -np.inf
        self._best: dict[str, Tensor] = {}
        self._saved_at = time.monotonic()

    @property
    def _device(self) -> torch.device:
        return next(self._net.parameters()).device

    def read_losses(self) -> list[float]:
        """Return the epoch's losses as numbers. Call it rarely: it waits for the device."""
        known = [loss for loss in self.losses if not isinstance(loss, Tensor)]
        left = [loss for loss in self.losses if isinstance(loss, Tensor)]
        if left:
            known += torch.stack(left).tolist()
        self.losses = list(known)
        return known

    def keep_if_best(self, score: float, measures: dict[str, float]) -> None:
        """Record an epoch's validation `score` (higher is better) and further measures; copy the
        net's weights if the score is the best so far."""
        self.history.append((self.epoch + 1, score, measures))
        self.epochs_since_best += 1
        if score > self._best_score:
            self._best_score, self.epochs_since_best = score, 0
            self._best = copy.deepcopy(self._net.state_dict())

    def take_chosen_weights(self) -> None:
        """Load the weights of the best validation score, if there was validation."""
        if self._best:
            self._net.load_state_dict(self._best)

    def save_now_and_then(self, folder: Path) -> None:
        """Write a checkpoint if SECONDS_BETWEEN have passed since the last one."""
        if time.monotonic() - self._saved_at >= SECONDS_BETWEEN:
            self.save(folder)
            self._saved_at = time.monotonic()

    def save(self, folder: Path) -> None:
        """Write the whole state into `folder`."""
        tensors = {
            **with_prefix(NET, self._net.state_dict()),
            **with_prefix(OPTIMIZER, flatten_optimizer(self._optimizer)),
            **with_prefix(BEST, self._best),
            TORCH_RANDOM: torch.get_rng_state(),
        }
        if self._device.type == "cuda":
            tensors[GPU_RANDOM] = torch.cuda.get_rng_state(self._device)
        if isinstance(self._net, Remembering):
            tensors |= with_prefix(MEMORY, self._net.memory())
        if self.order is not None:
            tensors[ORDER] = torch.from_numpy(self.order)
        drawn = {str(step): torch.from_numpy(rows) for step, rows in enumerate(self.drawn)}
        tensors |= with_prefix(DRAWN, drawn)
        record = {
            "fit": self._fit,
            "losses": self.read_losses(),
            "epoch": self.epoch,
            "epochs_since_best": self.epochs_since_best,
            "best_score": self._best_score,
            "history": self.history,
            "generator": self.generator.bit_generator.state,
        }
        save_checkpoint(folder, tensors, record)

    def go_on_from(self, folder: Path) -> None:
        """Restore the state that `save` wrote into `folder`, if the same fit wrote it."""
        found = load_checkpoint(folder, self._fit)
        if found is None:
            return
        tensors, record = found
        self._net.load_state_dict(without_prefix(NET, tensors))
        restore_optimizer(self._optimizer, without_prefix(OPTIMIZER, tensors))
        device = self._device
        self._best = {n: t.to(device) for n, t in without_prefix(BEST, tensors).items()}
        if isinstance(self._net, Remembering):
            self._net.recall(without_prefix(MEMORY, tensors))
        torch.set_rng_state(tensors[TORCH_RANDOM])
        if GPU_RANDOM in tensors and device.type == "cuda":
            torch.cuda.set_rng_state(tensors[GPU_RANDOM], device)
        self.epoch, self.epochs_since_best = record["epoch"], record["epochs_since_best"]
        self._best_score = record["best_score"]
        self.history = [(epoch, score, measures) for epoch, score, measures in record["history"]]
        self.order = tensors[ORDER].numpy() if ORDER in tensors else None
        drawn = without_prefix(DRAWN, tensors)
        self.drawn = [drawn[str(step)].numpy() for step in range(len(drawn))]
        self.losses = record["losses"]
        self.generator.bit_generator.state = record["generator"]
