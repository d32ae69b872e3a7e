"""A step of learning. On a GPU each lesson's is recorded, and done again by one call."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

CLIP = 1.0  # of the gradient's norm


def make_optimizer(net: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """Adam; where the net is on a GPU, one whose steps can be recorded."""
    device = next(net.parameters()).device
    if device.type != "cuda":
        return torch.optim.Adam(net.parameters(), lr=learning_rate)
    warnings.filterwarnings("ignore", ".*capturable=True", UserWarning)  # first steps are not
    rate = torch.tensor(learning_rate, device=device)  # a recorded step reads it there
    return torch.optim.Adam(net.parameters(), lr=rate, capturable=True)


def set_rate(optimizer: torch.optim.Adam, rate: float) -> None:
    """The learning rate of the steps to come."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@contextmanager
def beside_the_default(device: torch.device) -> Iterator[None]:
    """On a GPU all is computed in a stream of its own: in the default one nothing is recorded."""
    if device.type != "cuda":
        yield
        return
    default, own = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    own.wait_stream(default)
    with torch.cuda.stream(own):
        yield
    default.wait_stream(own)


class StepRunner:
    """Takes a step of the optimizer for one lesson after another.

    A small net on one graph at a time is some thousand kernels of a few microseconds each, and a
    GPU waits for Python to launch them. So the first time that a lesson comes its step is done as
    written, the second time it is recorded as a CUDA graph, and from then on that is replayed. The
    recordings share their memory: they run one after the other, and of one of them nothing lasts
    but the weights and what the optimizer remembers.

    Args:
        find_loss: of a lesson that is where the net is; it must not wait for the GPU.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, find_loss: Callable[[Any], Tensor]
    ) -> None:
        self.optimizer, self.find_loss = optimizer, find_loss
        self._parameters = [own for group in optimizer.param_groups for own in group["params"]]
        self._seen: dict[int, Any] = {}  # by identity, which is theirs as long as they are here
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._memory: Any = None

    def __call__(self, lesson: Any) -> Tensor:
        """The loss before the step, where the net is."""
        key = id(lesson)
        if not self._parameters[0].is_cuda or key not in self._seen:
            self._seen[key] = lesson
            return self._step(lesson)
        if key not in self._recorded:
            self._recorded[key] = self._record(lesson)
        graph, loss = self._recorded[key]
        graph.replay()
        return loss.clone()

    def _record(self, lesson: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Nothing is computed meanwhile."""
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()  # so that gradients, too, are in the memory of the recordings
        graph.capture_begin(self._memory, capture_error_mode="thread_local")
        loss = self._step(lesson)
        graph.capture_end()
        return graph, loss

    def _step(self, lesson: Any) -> Tensor:
        loss = self.find_loss(lesson)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, CLIP)
        self.optimizer.step()
        return loss.detach()
