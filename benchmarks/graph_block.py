"""Time a graph convolution with nodes first and with configurations first.

Run: .venv/bin/python -m benchmarks.graph_block
Prints the median and spread of both in milliseconds, forward and backward, and their ratio; the two
run alternately, so the ratio is robust on a noisy machine.
"""

import time

import numpy as np
import torch
from torch_geometric.nn import SAGEConv

from solution.models.nets.convolutions import BothWaysBlock

NODES, EDGES, CONFIGS, WIDTH, ROUNDS = 800, 1000, 48, 64, 15


def configs_first_block() -> BothWaysBlock:
    """Return the same block for x (configs, nodes, width)."""
    block = BothWaysBlock(WIDTH)
    block.from_operands = SAGEConv(WIDTH, WIDTH, aggr="mean")
    block.from_consumers = SAGEConv(WIDTH, WIDTH, aggr="mean", root_weight=False)
    return block


def seconds(block: BothWaysBlock, x: torch.Tensor, edges: torch.Tensor) -> float:
    """Return the wall time of one forward and backward pass."""
    start = time.perf_counter()
    block(x, edges).sum().backward()
    return time.perf_counter() - start


def main() -> None:
    """Time both alternately and print the table."""
    torch.manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES))
    x = torch.randn(NODES, CONFIGS, WIDTH)
    first, second = BothWaysBlock(WIDTH), configs_first_block()
    swapped = x.transpose(0, 1).contiguous().requires_grad_()
    pairs = [
        (seconds(first, x.clone().requires_grad_(), edges), seconds(second, swapped, edges))
        for _ in range(ROUNDS + 2)
    ][2:]
    for name, column in zip(("nodes first", "configs first"), np.array(pairs).T, strict=True):
        low, middle, high = 1000 * np.quantile(column, [0, 0.5, 1])
        print(f"{name:14} {middle:7.1f} ms  ({low:.1f} to {high:.1f})")
    ratios = np.array([a / b for a, b in pairs])
    print(f"ratio          {np.median(ratios):7.2f}     ({ratios.min():.2f} to {ratios.max():.2f})")


if __name__ == "__main__":
    main()
