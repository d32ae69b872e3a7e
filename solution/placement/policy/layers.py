"""Layers of the policy network.

Sources: Hamilton et al., "Inductive Representation Learning on Large Graphs" (2017), with maximum
pooling; Dai et al., "Transformer-XL" (2019), for the recurrence between segments; Zheng et al.,
"Conditional random fields as recurrent neural networks" (2015), for the mean-field iterations.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# initial coupling (logits if all neighbours agree); larger ones hinder gradients
FIRST_STRENGTH = 1.0
SETTLING = 3  # factor of the number of iterations at inference
FIRM = 4.0  # factor of the coupling in the last iteration at inference
CHUNK = 64  # segments whose attention is in memory at once at inference


class GraphSage(nn.Module):
    """h' = ReLU(F [h ; m] + g), m = max over neighbours of sigmoid(W h + b), or 0 without
    neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Linear(width, width)
        self.join = nn.Linear(2 * width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """`nodes` is (nodes, width), `edges` (2, edges) with rows [target, source]."""
        messages = torch.sigmoid(self.message(nodes))
        index = edges[0, :, None].expand(-1, nodes.shape[1])
        heard = torch.zeros_like(nodes).scatter_reduce(
            0, index, messages.index_select(0, edges[1]), "amax"
        )
        return F.relu(self.join(torch.cat([nodes, heard], dim=1)))


class NodeAlone(nn.Module):
    """Replaces GraphSage in the ablation without topology: a layer on each node alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.join = nn.Linear(width, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """`nodes` is (nodes, width); the edges are ignored."""
        return F.relu(self.join(nodes))


class SegmentAttention(nn.Module):
    """A transformer layer in which a segment of nodes attends to itself and the segment before it.

    No gradient flows into the earlier segment. There is no positional encoding, because the graph
    embedding has the topology, and no causal mask, because all decisions are made together.
    """

    def __init__(self, width: int, heads: int, inner: int, segment: int, *, memory: bool) -> None:
        super().__init__()
        self.heads, self.segment, self.memory = heads, segment, memory
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))

    def forward(self, nodes: Tensor) -> Tensor:
        """`nodes` is (batch, nodes, width), in topological order; returns the same shape."""
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
        """Return the attention output of segments first ... last - 1: (batch, last - first,
        length, width)."""
        own, valid = pieces[:, first:last], known[first:last]
        batch, segments, length, width = own.shape
        rows = self.before(own)
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
        changed = own + self.output(joined)
        return changed + self.inner(self.behind(changed))

    def _split(self, rows: Tensor) -> Tensor:
        """Reshape (batch, segments, rows, width) to (batch * segments, heads, rows, width /
        heads)."""
        batch, segments, count, width = rows.shape
        return rows.reshape(batch * segments, count, self.heads, -1).transpose(1, 2)


class WithoutAttention(nn.Module):
    """Replaces SegmentAttention in the ablation without attention.

    Args:
        recurrent: connect the nodes by a bidirectional LSTM; else each node is transformed alone.
    """

    def __init__(self, width: int, inner: int, *, recurrent: bool) -> None:
        super().__init__()
        self.behind = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.before = nn.LayerNorm(width) if recurrent else None
        if recurrent:
            self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, nodes: Tensor) -> Tensor:
        """`nodes` is (batch, nodes, width), in topological order; returns the same shape."""
        seen = nodes if self.before is None else nodes + self.lstm(self.before(nodes))[0]
        return seen + self.inner(self.behind(seen))


class Modulation(nn.Module):
    """c(x) = sigmoid(W mean x + b): a factor per channel, shared by all layers."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.factor = nn.Linear(width, width)

    def forward(self, nodes: Tensor) -> Tensor:
        """`nodes` is (nodes, width); returns factors (1, width) of the graph or (nodes, width)
        per node."""
        if self.kind == "none":
            return torch.ones_like(nodes[:1])
        seen = nodes if self.kind == "node" else nodes.mean(dim=0, keepdim=True)
        return torch.sigmoid(self.factor(seen))


class Votes(NamedTuple):
    """Weighted edges between nodes that should share a device; each node's incoming weights sum
    to 1."""

    to: Tensor  # (votes,) int64
    of: Tensor  # (votes,) int64
    weights: Tensor  # (votes,) float32


class Agreement(nn.Module):
    """Mean-field iterations: actions that a node's neighbours probably take become likelier for it.

    Independent decisions cut a graph at every mistake, and a few misplaced nodes cost more than a
    good partition saves. In training, all iterations have the same coupling. At inference there are
    SETTLING times as many and the coupling grows (annealing): confident nodes decide first, and
    their neighbours follow. This is an addition; the document does not have it.
    """

    def __init__(self, sweeps: int) -> None:
        super().__init__()
        self.sweeps = sweeps
        self.strength = nn.Parameter(torch.tensor(FIRST_STRENGTH).expm1().log())

    def forward(self, logits: Tensor, votes: Votes) -> Tensor:
        """Return `logits` (decisions, nodes, actions) of independent nodes after adding the
        votes."""
        strength, agreed = nn.functional.softplus(self.strength), logits
        growth = torch.ones(self.sweeps)
        if not self.training:
            growth = torch.linspace(1, FIRM, SETTLING * self.sweeps)
        for times in growth.tolist():
            said = agreed.softmax(dim=2).index_select(1, votes.of) * votes.weights[:, None]
            heard = torch.zeros_like(logits).index_add(1, votes.to, said)
            agreed = logits + times * strength * heard
        return agreed
