"""The policy network: from a whole graph to the probabilities of every action of every node.

Graph embedding, modulation and the lower attention layers are shared by all tasks. Then the tasks
(placement, schedule, fusion) follow one after the other through one recurrent attention layer,
whose residual path carries the earlier decisions.

A policy is saved as one file: safetensors with JSON settings and a checksum inside; no pickle.

Sources: Hamilton et al., "Inductive Representation Learning on Large Graphs" (2017), with maximum
pooling; Dai et al., "Transformer-XL" (2019), for the recurrence between segments; Zheng et al.,
"Conditional random fields as recurrent neural networks" (2015), for the mean-field iterations.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from solution.domain.vocabulary import NUM_OPCODES
from solution.models.nets.checkpoint import SEAL, seal_tensors
from solution.placement.policy.graph_inputs import NUM_COLUMNS, Inputs, Votes
from solution.placement.policy.policy_settings import MAX_HEAD, PolicySettings
from solution.system.errors import InputError
from solution.system.files import open_regular, write_bytes

# initial coupling (Agreement): added to an action's logit if all neighbours take it
FIRST_STRENGTH = 1.0
SETTLING = 3  # mean-field iterations at inference, as a multiple of those in training
FIRM = 4.0  # factor on the coupling in the last mean-field iteration at inference; 1 in the first
CHUNK = 64  # number of segments whose attention is computed at once at inference, to save memory
OPCODE_WIDTH = 32
# Actions (decisions, nodes), or a function of log probabilities (1, nodes, actions) to actions.
Given = Tensor | Callable[[Tensor], Tensor]
SHIPPED = Path(__file__).parent / "go.safetensors"
SETTINGS = "settings"
MAX_BYTES = 64 << 20


class GraphSage(nn.Module):
    """A layer on nodes h: h' = ReLU(F concat(h, m) + g), where F, g, W and b are learned.

    m = max over neighbours of sigmoid(W h + b); a node without neighbours has m = 0.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Linear(width, width)
        self.join = nn.Linear(2 * width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return (nodes, width), given nodes (nodes, width), edges (2, edges) [target, source]."""
        messages = torch.sigmoid(self.message(nodes))
        index = edges[0, :, None].expand(-1, nodes.shape[1])
        heard = torch.zeros_like(nodes).scatter_reduce(
            0, index, messages.index_select(0, edges[1]), "amax"
        )
        return F.relu(self.join(torch.cat([nodes, heard], dim=1)))


class NodeAlone(nn.Module):
    """The ablation without topology: a layer like GraphSage that ignores a node's neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.join = nn.Linear(width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return (nodes, width), given nodes (nodes, width); the edges are ignored."""
        return F.relu(self.join(nodes))


class SegmentAttention(nn.Module):
    """A transformer layer in which a segment of nodes attends to itself and, without gradient, to
    the segment before it. The graph embedding replaces positions. There is no causal mask, because
    all decisions are made together."""

    def __init__(self, width: int, heads: int, inner: int, segment: int, *, memory: bool) -> None:
        super().__init__()
        self.heads, self.segment, self.memory = heads, segment, memory
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))

    def forward(self, nodes: Tensor) -> Tensor:
        """Return (batch, nodes, width), given nodes of this shape in topological order."""
        batch, count, width = nodes.shape
        length = min(self.segment, count)
        segments = -(-count // length)
        padded = F.pad(nodes, (0, 0, 0, segments * length - count))
        known = torch.arange(segments * length, device=nodes.device) < count
        pieces = padded.view(batch, segments, length, width)
        step = segments if torch.is_grad_enabled() else CHUNK
        parts = [
            self._attend(pieces, known.view(segments, length), first, min(first + step, segments))
            for first in range(0, segments, step)
        ]
        return torch.cat(parts, dim=1).reshape(batch, -1, width)[:, :count]

    def _attend(self, pieces: Tensor, known: Tensor, first: int, last: int) -> Tensor:
        """Return the output (batch, last - first, length, width) of the segments first ... last - 1
        of `pieces` (batch, segments, length, width). `known`: (segments, length), False for
        padding."""
        current, valid = pieces[:, first:last], known[first:last]
        batch, segments, length, width = current.shape
        rows = self.before(current)
        context = rows
        if self.memory and pieces.shape[1] > 1:
            earlier = torch.arange(first, last, device=pieces.device) - 1
            cached = self.before(pieces[:, earlier.clamp(min=0)]).detach()
            context = torch.cat([cached, rows], dim=2)
            there = known[earlier.clamp(min=0)] & (earlier >= 0)[:, None]
            valid = torch.cat([there, valid], dim=1)
        query = self._split(self.query(rows))
        key, value = (self._split(part) for part in self.key_value(context).chunk(2, dim=-1))
        mask = valid[:, None, None].repeat(batch, 1, 1, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        joined = mixed.transpose(1, 2).reshape(batch, segments, length, width)
        changed = current + self.output(joined)
        return changed + self.inner(self.behind(changed))

    def _split(self, rows: Tensor) -> Tensor:
        """Turn (batch, segments, rows, width) to (batch * segments, heads, rows, width / heads)."""
        batch, segments, count, width = rows.shape
        return rows.reshape(batch * segments, count, self.heads, -1).transpose(1, 2)


class WithoutAttention(nn.Module):
    """The ablation without attention: a bidirectional LSTM if `recurrent`, else each node alone."""

    def __init__(self, width: int, inner: int, *, recurrent: bool) -> None:
        super().__init__()
        self.behind = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.before = nn.LayerNorm(width) if recurrent else None
        if recurrent:
            self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return (batch, nodes, width), given nodes of this shape in topological order."""
        seen = nodes if self.before is None else nodes + self.lstm(self.before(nodes))[0]
        return seen + self.inner(self.behind(seen))


class Modulation(nn.Module):
    """c(x) = sigmoid(W mean x + b): a factor per channel, shared by all layers. `kind`: "graph", as
    above; "node", from each node's x without the mean; "none", a factor of 1."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.factor = nn.Linear(width, width)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return factors (1, width), or (nodes, width) per node, given nodes (nodes, width)."""
        if self.kind == "none":
            return torch.ones_like(nodes[:1])
        seen = nodes if self.kind == "node" else nodes.mean(dim=0, keepdim=True)
        return torch.sigmoid(self.factor(seen))


class Agreement(nn.Module):
    """Mean-field iterations: a device becomes likelier for a node whose neighbours prefer it.

    Independent decisions would cut the graph around every node that decides wrongly. In training
    all iterations have the same coupling; at inference there are SETTLING times as many and the
    coupling grows (annealing): confident nodes decide first, and their neighbours follow. The GO
    paper does not have this layer.
    """

    def __init__(self, sweeps: int) -> None:
        super().__init__()
        self.sweeps = sweeps
        self.strength = nn.Parameter(torch.tensor(FIRST_STRENGTH).expm1().log())

    def forward(self, logits: Tensor, votes: Votes) -> Tensor:
        """Return `logits` (decisions, nodes, actions) plus the votes of each node's neighbours."""
        # agreed' = logits + growth * strength * sum over neighbours of weight * softmax(agreed)
        strength, agreed = nn.functional.softplus(self.strength), logits
        growth = torch.ones(self.sweeps)
        if not self.training:
            growth = torch.linspace(1, FIRM, SETTLING * self.sweeps)
        for times in growth.tolist():
            said = agreed.softmax(dim=2).index_select(1, votes.of) * votes.weights[:, None]
            heard = torch.zeros_like(logits).index_add(1, votes.to, said)
            agreed = logits + times * strength * heard
        return agreed


@dataclass(frozen=True, eq=False)
class PolicyChoice:
    """The policy's output for one task: actions for several decisions, and their probabilities."""

    actions: Tensor  # (decisions, nodes) int64: the action of each node
    log_chances: Tensor  # (decisions or 1, nodes, actions): log probabilities of all actions

    def of_actions(self) -> Tensor:
        """Return the log probabilities (decisions, nodes) of the chosen actions."""
        chances = self.log_chances.expand(len(self.actions), -1, -1)
        return chances.gather(2, self.actions[:, :, None])[:, :, 0]

    def entropy(self) -> Tensor:
        """Return the entropy (decisions or 1, nodes) in nats; a masked action adds nothing."""
        return -(self.log_chances.exp() * self.log_chances.clamp(min=-50)).sum(dim=2)


class Policy(nn.Module):
    """The policy network. Its weights do not depend on the size of a graph or machine."""

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        fed = sum(settings.actions(task) for task in settings.tasks) if settings.rounds > 1 else 0
        self.opcodes = nn.Embedding(NUM_OPCODES, OPCODE_WIDTH)
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(NUM_COLUMNS))
        self.register_buffer("scale", torch.ones(NUM_COLUMNS))
        self.enter = nn.Linear(OPCODE_WIDTH + NUM_COLUMNS + fed, width)
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
        settings = self.settings
        if settings.attention != "segments":
            return WithoutAttention(
                settings.width, settings.inner, recurrent=settings.attention == "lstm"
            )
        return SegmentAttention(
            settings.width, settings.heads, settings.inner, settings.segment, memory=settings.memory
        )

    def set_scale(self, mean: Tensor, scale: Tensor) -> None:
        """Set how input columns are standardised: (columns - mean) * scale; both (NUM_COLUMNS,)."""
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
    ) -> dict[str, PolicyChoice]:
        """Decide all tasks that are not fixed; return the choice for each.

        Args:
            devices: number of devices; further outputs of the placement head are masked.
            decisions: number of decisions to sample.
            given: actions per task whose probabilities to return; then nothing is sampled.
            generator: random numbers for sampling; without it, and without `given`, the likeliest
                actions are taken.
            fixed: actions (1, nodes) of the tasks that are not decided; the other tasks see them in
                every round, because the program will run with them.

        A round decides all tasks once. Each round but the last passes its probabilities to the next
        one, without gradients. Everything is computed on the policy's torch device, wherever the
        arguments are.
        """
        device = self.mean.device
        inputs = inputs.to(device)
        fixed = {task: actions.to(device) for task, actions in (fixed or {}).items()}
        columns = self.enter.in_features - OPCODE_WIDTH - NUM_COLUMNS
        fed = inputs.columns.new_zeros(inputs.num_nodes, columns)
        for _ in range(self.settings.rounds - 1):
            with torch.no_grad():
                shared = self._share(inputs, devices, fed)
                soft = self._decide(inputs, shared, devices, 1, None, None, fixed, soft=True)
                fed = torch.cat([self._chances(task, soft, fixed) for task in self.settings.tasks],
                                dim=1)  # fmt: skip
        shared = self._share(inputs, devices, fed)
        return self._decide(inputs, shared, devices, decisions, given, generator, fixed)

    def _chances(
        self, task: str, soft: dict[str, PolicyChoice], fixed: dict[str, Tensor]
    ) -> Tensor:
        """Return probabilities (nodes, actions) as an input of the next round; one-hot if fixed."""
        return (
            self._mark(task, fixed[task])[0] if task in fixed else soft[task].log_chances[0].exp()
        )

    def _mark(self, task: str, actions: Tensor) -> Tensor:
        marks = nn.functional.one_hot(actions, self.settings.actions(task))
        return marks.to(self.mean.dtype)

    def _share(self, inputs: Inputs, devices: int, fed: Tensor) -> tuple[Tensor, Tensor]:
        """Return node states (1, nodes, width) that all tasks share, and the modulation factors."""
        columns = (inputs.columns - self.mean) * self.scale
        # Not nn.Embedding: the gradient of its lookup synchronises with a GPU.
        embedded = self.opcodes.weight.index_select(0, inputs.opcodes)
        entered = self.enter(torch.cat([embedded, columns, fed], 1))
        # the number of devices is an input: the best partition into two parts need not be a union
        # of the parts of the best partition into four
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
    ) -> dict[str, PolicyChoice]:
        """Decide the tasks one after the other (placement, schedule, fusion), each for all nodes at
        once. Each task reads the actions of the earlier tasks or, if `soft`, their probabilities.
        `found`: node states and modulation factors from `_share`. For the other arguments see
        `forward`."""
        state, factor = found
        choices: dict[str, PolicyChoice] = {}
        told: Tensor | None = None
        for number, task in enumerate(self.settings.tasks):
            seen = state if told is None else state + self.tell[number - 1](told)
            state = state + self.recurrent(self.settle(seen))
            if task in fixed:
                told = self._mark(task, fixed[task])
                continue
            logits = self.heads[number](factor * state)
            if task == "placement":
                there = torch.arange(logits.shape[2], device=logits.device) < devices
                logits = logits.masked_fill(~there, -torch.inf)
                logits = self.agreement(logits, inputs.votes)
            chances = logits.log_softmax(dim=2)
            actions = draw_actions(chances, decisions, generator) if given is None else given[task]
            if not isinstance(actions, Tensor):
                actions = actions(chances)
            actions = actions.to(chances.device)
            choices[task] = PolicyChoice(actions, chances)
            told = chances.exp() if soft else self._mark(task, actions)
        return choices


def draw_actions(chances: Tensor, decisions: int, generator: torch.Generator | None) -> Tensor:
    """Return actions (decisions, nodes), sampled by the Gumbel-max trick (argmax(log p - log(-log
    u)) has the distribution p), or the likeliest without a generator. `chances` are log
    probabilities (decisions or 1, nodes, actions)."""
    if generator is None:
        return chances.argmax(dim=2).expand(decisions, -1)
    shape = (decisions, *chances.shape[1:])
    uniform = torch.rand(shape, generator=generator).clamp(1e-12, 1 - 1e-7).to(chances.device)
    return (chances - torch.log(-torch.log(uniform))).argmax(dim=2)


def save_policy(policy: Policy, path: Path) -> None:
    """Write the policy as one file."""
    tensors = {name: value.contiguous() for name, value in policy.state_dict().items()}
    text = json.dumps(asdict(policy.settings))
    content = save(tensors, {SETTINGS: text, SEAL: seal_tensors(tensors, text)})
    write_bytes(content, path)


def load_policy(path: Path = SHIPPED) -> Policy:
    """Read a policy; raise InputError if the file is not a valid one."""
    try:
        open_regular(path, "a policy", MAX_BYTES).close()
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not {SETTINGS, SEAL} <= facts.keys():
            raise ValueError("its weights are of something else")
        if facts[SEAL] != seal_tensors(tensors, facts[SETTINGS]):
            raise ValueError("its checksum is another: the file is damaged")
        policy = Policy(_read_settings(facts[SETTINGS]))
        policy.load_state_dict(tensors)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    except (SafetensorError, ValidationError, RuntimeError, ValueError, LookupError) as error:
        text = str(error).splitlines()[0].removesuffix(".")
        raise InputError(f"{path}: expected a policy in safetensors, but: {text}.") from error
    if not all(torch.isfinite(value).all() for value in policy.state_dict().values()):
        raise InputError(f"{path}: expected a policy, but a weight is no finite number.")
    return policy.eval()


def _read_settings(text: str) -> PolicySettings:
    """Return the settings; raise ValueError if they are not valid."""
    try:
        return TypeAdapter(PolicySettings).validate_json(text)
    except InputError as error:
        raise ValueError(str(error)) from error
