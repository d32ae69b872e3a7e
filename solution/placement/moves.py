"""Propose changes of a decision at several scales: a node, its neighbourhood, a run, a part.

A search that changes one node at a time cannot move a layer to another device, because every
intermediate step adds transfers.
"""

import numpy as np

from solution.placement.evaluation import Evaluator
from solution.placement.simulation.decision import FUSION_LEVELS, Decision

LONGEST_RUN = 4  # longest run = nodes / 4
MOST_HOPS = 4
MOST_NODES = 512  # largest neighbourhood
SAID = 0.3  # share of changes of devices and fusions that are drawn from the policy
CRITICAL = 0.5  # share of changes around a node on the critical chain
WEIGHTS = {"fusion": 2, "placement": 2, "schedule": 1}  # relative frequency of each task's changes


class Moves:
    """Propose changes for one evaluator's graph and tasks.

    Args:
        chances: the policy's probabilities (nodes, actions) per task, from which a share SAID of
            the changes is drawn.
    """

    def __init__(self, evaluator: Evaluator, chances: dict[str, np.ndarray] | None = None) -> None:
        self.graph, self.devices = evaluator.graph, len(evaluator.machine)
        self.tasks = evaluator.tasks
        weights = np.array([WEIGHTS[task] for task in self.tasks], float)
        self.often = np.cumsum(weights / weights.sum())
        # Cached for the decision that was changed last.
        self._critical: tuple[Decision, np.ndarray] | None = None
        self.cumulated = {task: np.cumsum(c, axis=1) for task, c in (chances or {}).items()}
        order = np.argsort(self.graph.stages, kind="stable")
        self.stages = np.split(order, np.flatnonzero(np.diff(self.graph.stages[order])) + 1)
        _, self.stage_of = np.unique(self.graph.stages, return_inverse=True)

    def __call__(
        self, evaluator: Evaluator, decision: Decision, random: np.random.Generator
    ) -> Decision:
        """Return a decision in which some nodes have another action in one task."""
        if self._critical is None or self._critical[0] is not decision:
            self._critical = decision, evaluator.environment.find_critical(decision)
        task = self.tasks[int((self.often < random.random()).sum())]
        if task == "placement":
            return self._place(decision, random)
        if task == "schedule":
            return self._schedule(decision, random)
        return self._fuse(decision, random)

    def _choose(self, random: np.random.Generator) -> np.ndarray:
        """Draw a set of related nodes (k,)."""
        count, scale = self.graph.num_nodes, random.integers(5)
        node = self._choose_one(random)
        if scale == 0:
            return np.array([node])
        if scale == 1:
            return np.append(self.graph.consumers.at(node), node)
        if scale == 2:
            return self._surround(node, int(random.integers(1, MOST_HOPS)))
        if scale == 3:
            return _cut(np.arange(count), node, max(count / LONGEST_RUN, 2), random)
        part = self.stages[self.stage_of[node]]
        return _cut(part, int(np.searchsorted(part, node)), len(part), random)

    def _choose_one(self, random: np.random.Generator) -> int:
        assert self._critical is not None
        critical = self._critical[1]
        if len(critical) and random.random() < CRITICAL:
            return int(critical[random.integers(len(critical))])
        return int(random.integers(self.graph.num_nodes))

    def _surround(self, node: int, hops: int) -> np.ndarray:
        """Return the node and all nodes within `hops` edges of it."""
        seen, front = {node}, [node]
        for _ in range(hops):
            reached: list[int] = []
            for start, of in (self.graph.consumers, self.graph.producers):
                for one in front:
                    reached += of[start[one] : start[one + 1]].tolist()
            front = [one for one in dict.fromkeys(reached) if one not in seen]
            seen.update(front)
            if len(seen) > MOST_NODES:
                break
        return np.array(sorted(seen))

    def _draw(self, task: str, nodes: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw the nodes' actions (k,) from the policy's probabilities."""
        uniform = random.random(len(nodes))[:, None]
        cumulated = self.cumulated[task]
        actions = self.devices if task == "placement" else cumulated.shape[1]
        # Because of rounding, the cumulated probabilities may end below the random number.
        return np.minimum((cumulated[nodes] < uniform).sum(axis=1), actions - 1)

    def _place(self, decision: Decision, random: np.random.Generator) -> Decision:
        nodes = self.graph.leaders[self._choose(random)]
        placement = decision.placement.copy()
        if "placement" in self.cumulated and random.random() < SAID:
            placement[nodes] = self._draw("placement", nodes, random)
            return Decision(placement, decision.priorities, decision.fusion)
        # keep only nodes of one device, so the move shifts a partition boundary
        if random.random() < 0.7:
            nodes = nodes[placement[nodes] == placement[nodes[random.integers(len(nodes))]]]
        around = self._find_devices_around(int(nodes[random.integers(len(nodes))]), placement)
        near = [device for device in around if device != placement[nodes[0]]]
        if near and random.random() < 0.5:
            placement[nodes] = near[random.integers(len(near))]
        else:
            placement[nodes] = random.integers(self.devices)
        return Decision(placement, decision.priorities, decision.fusion)

    def _find_devices_around(self, node: int, placement: np.ndarray) -> list[int]:
        near = self.graph.leaders[self.graph.neighbours(node)]
        return np.unique(placement[near]).tolist()

    def _schedule(self, decision: Decision, random: np.random.Generator) -> Decision:
        """Move the nodes before or after another node, or shift all their priorities by one
        amount."""
        nodes = self._choose(random)
        priorities = decision.priorities.copy()
        other = priorities[random.integers(self.graph.num_nodes)]
        shift = other - priorities[nodes[random.integers(len(nodes))]]
        if random.random() < 0.5:
            priorities[nodes] = other + random.choice([-0.5, 0.5])
        else:
            priorities[nodes] += shift + random.choice([-0.5, 0.0, 0.5])
        return Decision(decision.placement, priorities, decision.fusion)

    def _fuse(self, decision: Decision, random: np.random.Generator) -> Decision:
        nodes = self._choose(random)
        fusion = decision.fusion.copy()
        if "fusion" in self.cumulated and random.random() < SAID:
            fusion[nodes] = self._draw("fusion", nodes, random)
        else:
            fusion[nodes] = random.integers(FUSION_LEVELS) * (random.random() < 0.8)
        return Decision(decision.placement, decision.priorities, fusion)


def _cut(nodes: np.ndarray, place: int, longest: float, random: np.random.Generator) -> np.ndarray:
    """Return a random run of the nodes that contains index `place` and has at most `longest`
    nodes."""
    length = min(int(longest ** random.random()), len(nodes))
    first = max(place - int(random.integers(length)), 0)
    return nodes[first : first + length]
