"""The graph block against a slow loop over edges."""

import numpy as np
import torch
from torch.nn import functional

from solution.models.nets.convolutions import BothWaysBlock


def test_block_equals_a_loop_over_the_edges() -> None:
    torch.manual_seed(0)
    block = BothWaysBlock(4)
    x = torch.randn(5, 3, 4)
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]  # node 4 is isolated
    edge_index = torch.tensor(edges).T
    operands, consumers = torch.zeros_like(x), torch.zeros_like(x)
    for node in range(5):
        received = [x[source] for source, target in edges if target == node]
        told = [x[target] for source, target in edges if source == node]
        operands[node] = torch.stack(received).mean(0) if received else 0
        consumers[node] = torch.stack(told).mean(0) if told else 0
    first, second = block.from_operands, block.from_consumers
    message = first.lin_l(operands) + first.lin_r(x) + second.lin_l(consumers)
    expected = x + functional.gelu(block.norm(message))
    torch.testing.assert_close(block(x, edge_index), expected)


def test_block_treats_every_configuration_alone_and_edges_in_any_order() -> None:
    torch.manual_seed(0)
    block = BothWaysBlock(4)
    x, edge_index = torch.randn(6, 3, 4), torch.tensor([[0, 1, 2, 0], [1, 2, 3, 5]])
    whole = block(x, edge_index)
    torch.testing.assert_close(block(x[:, 1], edge_index), whole[:, 1])
    order = torch.from_numpy(np.array([2, 0, 3, 1]))
    torch.testing.assert_close(block(x, edge_index[:, order]), whole)
