"""The policy network: from a whole graph to the probabilities of every action of every node.

Graph embedding, modulation and the lower attention layers are shared. Then the tasks follow one
after the other through one recurrent attention layer, whose residual path carries the earlier
decisions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from solution.domain.vocabulary import NUM_OPCODES
from solution.placement.policy.inputs import NUM_COLUMNS, Inputs
from solution.placement.policy.layers import (
    Agreement,
    GraphSage,
    Modulation,
    NodeAlone,
    SegmentAttention,
    WithoutAttention,
)
from solution.placement.policy.settings import MAX_HEAD, PolicySettings

OPCODE_WIDTH = 32
# Actions (decisions, nodes), or a function that returns them from log probabilities (1, nodes,
# actions).
Given = Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Choice:
    """Actions of one task, for several decisions."""

    actions: Tensor  # (decisions, nodes) int64
    log_chances: Tensor  # (decisions or 1, nodes, actions): log probabilities of all actions

    def of_actions(self) -> Tensor:
        """Log probabilities (decisions, nodes) of the chosen actions."""
        chances = self.log_chances.expand(len(self.actions), -1, -1)
        return chances.gather(2, self.actions[:, :, None])[:, :, 0]

    def entropy(self) -> Tensor:
        """Return the entropy (decisions or 1, nodes) in nats; a masked action adds nothing."""
        return -(self.log_chances.exp() * self.log_chances.clamp(min=-50)).sum(dim=2)


class Policy(nn.Module):
    """The policy network, built from its settings alone."""

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        own = sum(settings.actions(task) for task in settings.tasks) if settings.rounds > 1 else 0
        self.opcodes = nn.Embedding(NUM_OPCODES, OPCODE_WIDTH)
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(NUM_COLUMNS))
        self.register_buffer("scale", torch.ones(NUM_COLUMNS))
        self.enter = nn.Linear(OPCODE_WIDTH + NUM_COLUMNS + own, width)
        self.devices = nn.Embedding(MAX_HEAD + 1, width)
        layer = GraphSage if settings.topology == "sage" else NodeAlone
        self.embedding = nn.ModuleList([layer(width) for _ in range(settings.embedding_layers)])
        self.modulation = Modulation(width, settings.modulation)
        self.attention = nn.ModuleList([self._attend() for _ in range(settings.attention_layers)])
        self.recurrent, self.settle = self._attend(), nn.LayerNorm(width)
        self.tell = nn.ModuleList(
            [nn.Linear(settings.actions(task), width, bias=False) for task in settings.tasks[:-1]]
        )
        self.agreement = Agreement(settings.agreement)
        self.heads = nn.ModuleList(
            [nn.Linear(width, settings.actions(task)) for task in settings.tasks]
        )

    def _attend(self) -> nn.Module:
        own = self.settings
        if own.attention != "segments":
            return WithoutAttention(own.width, own.inner, recurrent=own.attention == "lstm")
        return SegmentAttention(own.width, own.heads, own.inner, own.segment, memory=own.memory)

    def set_scale(self, mean: Tensor, scale: Tensor) -> None:
        """Standardise columns by the mean and scale of the training graphs."""
        self.mean.copy_(mean)
        self.scale.copy_(scale)

    def forward(
        self,
        inputs: Inputs,
        devices: int,
        decisions: int = 1,
        given: Mapping[str, Given] | None = None,
        generator: torch.Generator | None = None,
        fixed: dict[str, Tensor] | None = None,
    ) -> dict[str, Choice]:
        """Decide all tasks that are not fixed.

        Args:
            devices: number of devices; further outputs of the head are masked.
            decisions: number of decisions to sample.
            given: actions per task to evaluate; then nothing is sampled.
            generator: random numbers for sampling; without it, and without `given`, the likeliest
                actions are taken.
            fixed: actions (1, nodes) of the tasks that are not decided; the other tasks see them in
                every round, because they are what will run.

        Rounds before the last pass on probabilities, without gradients. Everything is computed on
        the policy's device, wherever the arguments are.
        """
        device = self.mean.device
        inputs = inputs.to(device)
        fixed = {task: own.to(device) for task, own in (fixed or {}).items()}
        fed = self._first_round(inputs)
        for _ in range(self.settings.rounds - 1):
            with torch.no_grad():
                shared = self._share(inputs, devices, fed)
                soft = self._decide(inputs, shared, devices, 1, None, None, fixed, soft=True)
                fed = torch.cat([self._chances(task, soft, fixed) for task in self.settings.tasks],
                                dim=1)  # fmt: skip
        shared = self._share(inputs, devices, fed)
        return self._decide(inputs, shared, devices, decisions, given, generator, fixed)

    def _chances(self, task: str, soft: dict[str, Choice], fixed: dict[str, Tensor]) -> Tensor:
        """Return a round's probabilities (nodes, actions); a fixed task is one-hot at its
        actions."""
        return (
            self._mark(task, fixed[task])[0] if task in fixed else soft[task].log_chances[0].exp()
        )

    def _mark(self, task: str, actions: Tensor) -> Tensor:
        marks = nn.functional.one_hot(actions, self.settings.actions(task))
        return marks.to(self.mean.dtype)

    def _first_round(self, inputs: Inputs) -> Tensor:
        own = self.enter.in_features - OPCODE_WIDTH - NUM_COLUMNS
        return inputs.columns.new_zeros(inputs.num_nodes, own)

    def _share(self, inputs: Inputs, devices: int, fed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state that all tasks share (1, nodes, width), and the factors of the
        modulation."""
        columns = (inputs.columns - self.mean) * self.scale
        # Not nn.Embedding: the gradient of its lookup synchronises with a GPU.
        embedded = self.opcodes.weight.index_select(0, inputs.opcodes)
        entered = self.enter(torch.cat([embedded, columns, fed], 1))
        # The number of devices is an input: the first two parts of a cut in four differ from a cut
        # in two.
        nodes = torch.relu(entered + self.devices.weight[min(devices, MAX_HEAD)])
        for layer in self.embedding:
            nodes = layer(nodes, inputs.edges)
        factor = self.modulation(nodes)
        shared = nodes[None]
        for layer in self.attention:
            shared = layer(factor * shared)
        return shared, factor

    def _decide(
        self,
        inputs: Inputs,
        found: tuple[Tensor, Tensor],
        devices: int,
        decisions: int,
        given: Mapping[str, Given] | None,
        generator: torch.Generator | None,
        fixed: dict[str, Tensor],
        *,
        soft: bool = False,
    ) -> dict[str, Choice]:
        """Decide the tasks in turn; with `soft`, later tasks see probabilities instead of
        actions."""
        state, factor = found
        choices: dict[str, Choice] = {}
        told: Tensor | None = None
        for place, task in enumerate(self.settings.tasks):
            seen = state if told is None else state + self.tell[place - 1](told)
            state = state + self.recurrent(self.settle(seen))
            if task in fixed:
                told = self._mark(task, fixed[task])
                continue
            logits = self.heads[place](factor * state)
            if task == "placement":
                there = torch.arange(logits.shape[2], device=logits.device) < devices
                logits = logits.masked_fill(~there, -torch.inf)
                logits = self.agreement(logits, inputs.votes)
            chances = logits.log_softmax(dim=2)
            actions = draw(chances, decisions, generator) if given is None else given[task]
            if not isinstance(actions, Tensor):
                actions = actions(chances)
            actions = actions.to(chances.device)
            choices[task] = Choice(actions, chances)
            told = chances.exp() if soft else self._mark(task, actions)
        return choices


def draw(chances: Tensor, decisions: int, generator: torch.Generator | None) -> Tensor:
    """Return actions (decisions, nodes), sampled, or the likeliest if there is no generator.

    Sampling uses the Gumbel-max trick: argmax(log p - log(-log u)) has the distribution p.
    """
    if generator is None:
        return chances.argmax(dim=2).expand(decisions, -1)
    shape = (decisions, *chances.shape[1:])
    uniform = torch.rand(shape, generator=generator).clamp(1e-12, 1 - 1e-7).to(chances.device)
    return (chances - torch.log(-torch.log(uniform))).argmax(dim=2)
