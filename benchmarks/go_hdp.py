"""HDP, hierarchical device placement: a grouper and a placer, trained by REINFORCE.

Source: Mirhoseini et al., "A Hierarchical Model for Device Placement" (2018). A feed-forward net
assigns every node to one of 256 groups, a sequence-to-sequence LSTM with attention assigns each
group to a device, and both learn from the runtime with its running mean as baseline.

Differences from the paper, where it gives no detail or assumes hundreds of thousands of decisions:
widths, learning rate and number of samples; log probabilities are averaged over nodes and over
groups, not summed, so that gradient steps do not grow with the graph; a group is described by the
mean of its nodes' features and its size, not by the groups that it reads; the encoder reads in one
direction; there is no added noise, and no first phase that trains the placer alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from solution.domain.vocabulary import NUM_OPCODES
from solution.placement.evaluation import Evaluator
from solution.placement.policy.graph_inputs import NUM_COLUMNS, Inputs, find_inputs
from solution.placement.simulation.decision import Decision

OPCODE_WIDTH = 32
DECAY = 0.9  # decay of the running mean of rewards


@dataclass(frozen=True)
class HdpSettings:
    """Settings of the nets and their training."""

    groups: int = 256
    width: int = 64
    samples: int = 8
    learning_rate: float = 1e-3


class GroupsAndDevices(nn.Module):
    """The grouper and the placer."""

    def __init__(self, groups: int, devices: int, width: int) -> None:
        super().__init__()
        self.groups, self.devices = groups, devices
        self.opcodes = nn.Embedding(NUM_OPCODES, OPCODE_WIDTH)
        features = OPCODE_WIDTH + NUM_COLUMNS
        self.grouper = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, groups)
        )
        self.encoder = nn.LSTM(features + 1, width, batch_first=True)
        self.decoder = nn.LSTMCell(2 * width, width)
        self.begin = nn.Embedding(devices + 1, width)
        self.head = nn.Linear(2 * width, devices)

    def draw(
        self, inputs: Inputs, samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Sample devices (samples, nodes); return them and their log probabilities (samples,)."""
        features = torch.cat([self.opcodes(inputs.opcodes), inputs.columns], dim=1)
        chances = self.grouper(features).log_softmax(dim=1)
        assigned = torch.multinomial(
            chances.exp(), samples, replacement=True, generator=generator
        ).T
        log_chances = chances[torch.arange(len(chances)), assigned].mean(dim=1)
        wide = assigned[:, :, None].expand(-1, -1, features.shape[1])
        sizes = torch.zeros(samples, self.groups).scatter_add(
            1, assigned, torch.ones(assigned.shape)
        )
        sums = torch.zeros(samples, self.groups, features.shape[1])
        sums = sums.scatter_add(1, wide, features.expand(samples, -1, -1))
        means = sums / sizes.clamp(min=1)[:, :, None]
        groups = torch.cat([means, sizes[:, :, None].log1p()], dim=2)
        devices, placed = self._place(groups, generator)
        return devices.gather(1, assigned), log_chances + placed

    def _place(self, groups: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sample a device for each group (samples, groups), one group after the other."""
        encoded, (hidden, cell) = self.encoder(groups)
        state, memory = hidden[0], cell[0]
        last = torch.full((len(groups),), self.devices)
        devices, total = [], torch.zeros(len(groups))
        for group in range(groups.shape[1]):
            state, memory = self.decoder(
                torch.cat([encoded[:, group], self.begin(last)], dim=1), (state, memory)
            )
            weights = torch.einsum("sgw,sw->sg", encoded, state).softmax(dim=1)
            seen = torch.einsum("sg,sgw->sw", weights, encoded)
            chances = self.head(torch.cat([state, seen], dim=1)).log_softmax(dim=1)
            last = torch.multinomial(chances.exp(), 1, generator=generator)[:, 0]
            total = total + chances.gather(1, last[:, None])[:, 0] / groups.shape[1]
            devices.append(last)
        return torch.stack(devices, dim=1), total


def place_hierarchically(
    evaluator: Evaluator, budget: int, seed: int, settings: HdpSettings | None = None
) -> None:
    """Train for `budget` evaluations; the evaluator keeps the best decision."""
    settings = settings or HdpSettings()
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    inputs, graph = find_inputs(evaluator.graph), evaluator.graph
    groups = min(settings.groups, graph.num_nodes)
    net = GroupsAndDevices(groups, len(evaluator.machine), settings.width)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    mean: float | None = None
    while len(evaluator.curve) < budget:
        samples = min(settings.samples, budget - len(evaluator.curve))
        devices, log_chances = net.draw(inputs, samples, generator)
        rewards = np.array([_reward(evaluator, placement) for placement in devices.numpy()])
        mean = rewards.mean() if mean is None else DECAY * mean + (1 - DECAY) * rewards.mean()
        advantages = torch.from_numpy(rewards - mean).float()
        loss = -(advantages * log_chances).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def _reward(evaluator: Evaluator, placement: np.ndarray) -> float:
    base = evaluator.base
    decision = Decision(placement[evaluator.graph.leaders], base.priorities, base.fusion)
    return evaluator.reward(evaluator.evaluate(decision))
