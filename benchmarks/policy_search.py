"""A policy network that learns while it is asked, as GO does, which places operations.

    an embedding of each site ─▶ GraphSAGE over the program ─▶ scores with each choice's embedding

The convolution and the objective are those of solution.placement.policy. GO's attention,
its rounds and what it learned of other programs are not here: it decides among devices that every
node may go to, and here each site has choices of its own, of one program, in a hundred
measurements; so the bonus of its entropy does not fall with time, either. Memory and time grow with
the sites times the most choices that one of them has.

Sources: Zhou et al., "Transferable Graph Optimizers for ML Compilers" (2020), and as in
solution.placement.policy.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from solution.choosing.proposer import Proposer
from solution.choosing.replay import Build, list_methods
from solution.choosing.space import MEAN, Space
from solution.placement.policy.layers import GraphSage
from solution.placement.policy.ppo import find_gain
from solution.placement.policy.settings import TrainingSettings

WIDTH, ROUNDS = 32, 2
DRAWN, TEMPERATURES = 4, (1.0, 2.0, 4.0)  # how many for each that is asked for, each time
BATCH = 4  # measurements of an update
FAILED = 0.1  # how far at least what failed is below the slowest, in logarithms of runtimes
SAME = 1e-8
# A policy of GO learns from thousands of decisions, this one from some tens.
TRAINING = TrainingSettings(learning_rate=0.02)
NAME = "policy"


def list_compared() -> dict[str, Build]:
    """Return every search of `choose` by name, then this one."""
    return {**list_methods(), NAME: lambda table, prior, seed: PolicySearch(table.space, seed)}


class SitePolicy(nn.Module):
    """The chance of each choice at each site; the default begins with that in a random one."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        sizes = torch.from_numpy(space.sizes.astype(np.int64))
        default = torch.from_numpy(space.default.astype(np.int64))
        most = int(sizes.max())
        self.sites = nn.Embedding(len(sizes), WIDTH)
        self.convolutions = nn.ModuleList(GraphSage(WIDTH) for _ in range(ROUNDS))
        self.choices = nn.Linear(2 * WIDTH, most, bias=False)
        nn.init.zeros_(self.choices.weight)
        self.links = torch.from_numpy(np.ascontiguousarray(space.both_ways.T, np.int64))
        first = torch.zeros(len(sizes), most)
        if space.members is None:
            others = (sizes - 1).clamp(min=1)
            first[torch.arange(len(sizes)), default] = torch.log(others * (1 - MEAN) / MEAN)
        self.first = first.masked_fill(torch.arange(most) >= sizes[:, None], -math.inf)

    def forward(self) -> Tensor:
        """Logarithms of chances (sites, most choices)."""
        own = heard = self.sites.weight
        for convolution in self.convolutions:
            heard = convolution(heard, self.links)
        scores = self.choices(torch.cat([own, heard], dim=1))
        return torch.log_softmax(self.first + scores, dim=1)


class PolicySearch(Proposer):
    """Draws what the policy thinks of, and teaches it by what that took."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._policy = SitePolicy(space)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=TRAINING.learning_rate)
        self._free = torch.from_numpy(np.flatnonzero(space.sizes > 1))
        self._learned = 0  # of those told
        self._find_bounds()

    def tell(self, choices: np.ndarray, times: np.ndarray) -> None:
        super().tell(choices, times)
        while len(self.times) - self._learned >= BATCH:
            self._learned += BATCH
            self._learn(self.choices[: self._learned], self.times[: self._learned])

    def _propose(self, count: int) -> np.ndarray:
        if not self._learned:
            return self.space.draw(self.generator, count)
        drawn = self.generator.random((DRAWN * count, self.space.sites, 1))
        # A policy that is sure of all sites draws what is known: then what is near to that.
        found = [(drawn > bounds).sum(axis=2) for bounds in self._bounds]
        return np.concatenate(found).astype(np.int32)

    def _find_bounds(self) -> None:
        """Up to which number each choice (sites, most choices) is drawn, by temperatures."""
        with torch.no_grad():
            known = self._policy().double()
        self._bounds = []
        for temperature in TEMPERATURES:
            bounds = torch.softmax(known / temperature, dim=1).numpy().cumsum(axis=1)
            # Whatever is left by rounding is the last choice's that there is.
            last = np.arange(bounds.shape[1]) >= self.space.sizes[:, None] - 1
            self._bounds.append(np.where(last, 1.0, bounds))

    def _learn(self, choices: np.ndarray, times: np.ndarray) -> None:
        """Update the policy by the last of configurations (k, sites) and what they took (k,).

        Each is compared with all that was measured, for the last alone are too few for a mean.
        """
        is_sound = np.isfinite(times)
        if not is_sound.any():
            return
        rewards = -np.log(times, where=is_sound, out=np.zeros(len(times)))
        rewards[~is_sound] = rewards[is_sound].min() - max(rewards[is_sound].std(), FAILED)
        if rewards.std() <= SAME:
            return
        rewards = ((rewards - rewards.mean()) / rewards.std())[-BATCH:]
        advantages = torch.from_numpy(rewards).float()
        taken = torch.from_numpy(choices[-BATCH:].T.astype(np.int64))  # (sites, BATCH)
        weight = TRAINING.entropy / math.sqrt(len(self._free))
        with torch.no_grad():
            before = self._weigh(taken)[0]
        for _ in range(TRAINING.epochs):
            now, entropy = self._weigh(taken)
            gain = find_gain(now - before, advantages, TRAINING.ratio, TRAINING.clip)
            self._optimizer.zero_grad()
            (-gain - weight * entropy).backward()
            nn.utils.clip_grad_norm_(self._policy.parameters(), TRAINING.gradient_norm)
            self._optimizer.step()
        self._find_bounds()

    def _weigh(self, taken: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the chances (k, sites) of choices (sites, k), and the mean entropy."""
        known = self._policy()[self._free]
        entropy = -(known.exp() * known.clamp(min=-1e4)).sum(dim=1).mean()
        return known.gather(1, taken[self._free]).T, entropy
