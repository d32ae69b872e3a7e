"""A policy network as an optimizer: like GO, which places operations, it learns from evaluations.

    an embedding of each site ─▶ GraphSAGE over the program ─▶ scores with each choice's embedding

The convolution and the objective are those of solution.placement.policy. It has no attention, no
rounds and no pretraining on other programs. GO decides among devices that every node may use; here
each site has its own choices, and there is one program and about a hundred measurements. So the
entropy bonus does not decay with time, either. Memory and time grow with
the number of sites times the largest number of choices of a site.

Sources: Zhou et al., "Transferable Graph Optimizers for ML Compilers" (2020), and as in
solution.placement.policy.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.replay import Build, list_methods
from solution.choosing.proposer import Proposer
from solution.collecting.space import MEAN, Space
from solution.models.nets.convolutions import both_ways
from solution.placement.policy.network import GraphSage
from solution.placement.policy.policy_settings import PolicyTraining
from solution.placement.policy.ppo import find_gain

WIDTH, ROUNDS = 32, 2
DRAWN, TEMPERATURES = 4, (1.0, 2.0, 4.0)  # samples per requested configuration
BATCH = 4  # measurements per update
FAILED = 0.1  # log runtime by which a failure counts as slower than the slowest, at least
SAME = 1e-8
# GO learns from thousands of decisions, this policy from some tens.
TRAINING = PolicyTraining(learning_rate=0.02)
NAME = "policy"


def list_compared() -> dict[str, Build]:
    """Return every search of `choose` by name, and this one."""
    return {**list_methods(), NAME: lambda table, prior, seed: PolicySearch(table.space, seed)}


class SitePolicy(nn.Module):
    """The probability of each choice at each site; the default's is initially that in a random
    draw."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        sizes = torch.from_numpy(space.sizes.astype(np.int64))
        default = torch.from_numpy(space.default.astype(np.int64))
        most = int(sizes.max())
        self.sites = nn.Embedding(len(sizes), WIDTH)
        self.convolutions = nn.ModuleList(GraphSage(WIDTH) for _ in range(ROUNDS))
        self.choices = nn.Linear(2 * WIDTH, most, bias=False)
        nn.init.zeros_(self.choices.weight)
        self.links = both_ways(torch.from_numpy(space.links.astype(np.int64).T))
        first = torch.zeros(len(sizes), most)
        if space.members is None:
            others = (sizes - 1).clamp(min=1)
            first[torch.arange(len(sizes)), default] = torch.log(others * (1 - MEAN) / MEAN)
        self.first = first.masked_fill(torch.arange(most) >= sizes[:, None], -math.inf)

    def forward(self) -> Tensor:
        """Return log probabilities (sites, most choices)."""
        own = heard = self.sites.weight
        for convolution in self.convolutions:
            heard = convolution(heard, self.links)
        scores = self.choices(torch.cat([own, heard], dim=1))
        return torch.log_softmax(self.first + scores, dim=1)


class PolicySearch(Proposer):
    """An optimizer that samples the policy, and trains it on the measurements."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._policy = SitePolicy(space)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=TRAINING.learning_rate)
        self._free = torch.from_numpy(np.flatnonzero(space.sizes > 1))
        self._learned = 0  # number of measurements that the policy has learned from
        self._find_bounds()

    def tell(self, configs: np.ndarray, times: np.ndarray) -> None:
        super().tell(configs, times)
        while len(self.times) - self._learned >= BATCH:
            self._learned += BATCH
            self._learn(self.configs[: self._learned], self.times[: self._learned])

    def _propose(self, count: int) -> np.ndarray:
        if not self._learned:
            return self.space.draw(self.generator, count)
        drawn = self.generator.random((DRAWN * count, self.space.sites, 1))
        # A policy that is sure of all sites samples known configurations: then use their
        # neighbours.
        found = [(drawn > bounds).sum(axis=2) for bounds in self._bounds]
        return np.concatenate(found).astype(np.int32)

    def _find_bounds(self) -> None:
        """Compute the cumulated probabilities of the choices (sites, most choices), by
        temperature."""
        with torch.no_grad():
            known = self._policy().double()
        self._bounds = []
        for temperature in TEMPERATURES:
            bounds = torch.softmax(known / temperature, dim=1).numpy().cumsum(axis=1)
            # The last valid choice gets what rounding leaves.
            last = np.arange(bounds.shape[1]) >= self.space.sizes[:, None] - 1
            self._bounds.append(np.where(last, 1.0, bounds))

    def _learn(self, choices: np.ndarray, times: np.ndarray) -> None:
        """Update the policy by the last of configurations (k, sites) and their runtimes (k,).

        Each is compared with all measurements, because the last ones are too few for a mean.
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
        """Return log probabilities (k, sites) of choices (sites, k), and the mean entropy."""
        known = self._policy()[self._free]
        entropy = -(known.exp() * known.clamp(min=-1e4)).sum(dim=1).mean()
        return known.gather(1, taken[self._free]).T, entropy
