"""One fit on several devices of a machine, where it alone would take too long.

Every process of the team runs the same loop with the same random numbers, computes its share of
each step's graphs, and adds up the gradients with the others before it steps: the sum is that of
one process with all graphs, to rounding and but for what dropout leaves out. Lightning Fabric's
data-parallel strategy connects the processes; its wrapper around the net is not used, for it
averages over equal shares, and the graphs of a step are of all sizes.
"""

import os
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from solution.system.processes import start_child

END_SECONDS = 30.0  # of a process whose work is done
T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """The processes of a fit, seen from one of them."""

    fabric: Fabric
    rank: int = 0
    size: int = 1

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """What of a step's graphs this process computes."""
        return items[self.rank :: self.size]

    def add_up(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every parameter the sum of all processes' gradients; where none has one, none."""
        if self.size == 1:
            return
        learned = list(parameters)
        known = torch.tensor([float(p.grad is not None) for p in learned])
        parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in learned]
        total = self._sum(torch.cat([part.reshape(-1) for part in parts]))
        counts = self._sum(known.to(total.device)).tolist()
        places = total.split([p.numel() for p in learned])
        for parameter, gradient, count in zip(learned, places, counts, strict=True):
            parameter.grad = gradient.view_as(parameter).clone() if count else None

    def sum_number(self, number: Tensor) -> Tensor:
        """A tensor without dimensions, over all processes."""
        return number if self.size == 1 else self._sum(number)

    def from_leader(self, compute: Callable[[], T]) -> T:
        """What the first process computes, for all."""
        if self.size == 1:
            return compute()
        return self.fabric.broadcast(compute() if self.rank == 0 else None, src=0)  # type: ignore[return-value]

    def wait(self) -> None:
        """For all others to be here as well."""
        self.fabric.barrier()

    def _sum(self, values: Tensor) -> Tensor:
        found = self.fabric.all_reduce(values, reduce_op="sum")
        assert isinstance(found, Tensor)
        return found


class _Apart(DDPStrategy):
    """Processes that share gradients when they are asked to."""

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        return module


@contextmanager
def lead(
    size: int, accelerator: str, precision: Any, follow: Callable[..., None], *arguments: Any
) -> Iterator[Team]:
    """Be the first of a team whose others call `follow(team, *arguments)` in processes of theirs.

    Args:
        accelerator: of each, as Fabric has it; GPU number so and so, where there are some.
        arguments: that can be pickled; tensors lie on the CPU.
    """
    port = _find_port()
    packed = pickle.dumps(arguments)  # shared, each tensor would take a file descriptor
    others = [
        start_child(_follow, rank, size, port, accelerator, precision, follow, packed)
        for rank in range(1, size)
    ]
    try:
        with _join(0, size, port, accelerator, precision) as team:
            yield team
        for other in others:
            other.join(END_SECONDS)
    finally:
        for other in others:
            other.kill()


def _follow(
    rank: int,
    size: int,
    port: int,
    accelerator: str,
    precision: Any,
    follow: Callable[..., None],
    packed: bytes,
) -> None:
    torch.set_num_threads(1)
    with _join(rank, size, port, accelerator, precision) as team:
        follow(team, *pickle.loads(packed))  # noqa: S301 - of the process that began this one


@contextmanager
def _join(rank: int, size: int, port: int, accelerator: str, precision: Any) -> Iterator[Team]:
    """Connect to the others, by the variables that Fabric and torchrun agree on."""
    before = dict(os.environ)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size),
        GROUP_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID=str(port),
    )  # fmt: skip
    try:
        fabric = Fabric(
            accelerator=accelerator, devices=size, strategy=_Apart(), precision=precision
        )
        fabric.launch()
        yield Team(fabric, rank, size)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        os.environ.clear()
        os.environ.update(before)


def _find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
