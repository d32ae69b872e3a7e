"""Changes of a decision at several scales: a node, what surrounds it, a run of nodes, a part.

A search that changes one node at a time cannot move a layer to another device: every step on the
way costs two transfers.
"""

import numpy as np

from solution.placement.evaluation import Evaluator
from solution.placement.simulation.decision import FUSION_LEVELS, Decision

LONGEST_RUN = 4  # a run is at most the nodes over this
MOST_HOPS = 4
MOST_NODES = 512  # of what surrounds a node
SAID = 0.3  # of the changes of devices and of fusions, drawn by the policy's chances
CRITICAL = 0.5  # of the changes, around a node that decides how long the step takes
WEIGHTS = {"fusion": 2, "placement": 2, "schedule": 1}  # how often a task is changed


class Moves:
    """Proposes changes for one evaluator's graph and tasks.

    Args:
        chances: (nodes, actions) a task, of the policy: from which SAID of the changes are
            drawn.
    """

    def __init__(self, evaluator: Evaluator, chances: dict[str, np.ndarray] | None = None) -> None:
        self.graph, self.devices = evaluator.graph, len(evaluator.machine)
        self.tasks = evaluator.tasks
        weights = np.array([WEIGHTS[task] for task in self.tasks], float)
        self.often = np.cumsum(weights / weights.sum())
        # Of the decision that was changed last.
        self._critical: tuple[Decision, np.ndarray] | None = None
        self.cumulated = {task: np.cumsum(c, axis=1) for task, c in (chances or {}).items()}
        order = np.argsort(self.graph.stages, kind="stable")
        self.stages = np.split(order, np.flatnonzero(np.diff(self.graph.stages[order])) + 1)
        _, self.stage_of = np.unique(self.graph.stages, return_inverse=True)

    def __call__(
        self, evaluator: Evaluator, decision: Decision, random: np.random.Generator
    ) -> Decision:
        """A decision in which some nodes have another action of one task."""
        if self._critical is None or self._critical[0] is not decision:
            self._critical = decision, evaluator.environment.find_critical(decision)
        task = self.tasks[int((self.often < random.random()).sum())]
        if task == "placement":
            return self._place(decision, random)
        if task == "schedule":
            return self._schedule(decision, random)
        return self._fuse(decision, random)

    def _choose(self, random: np.random.Generator) -> np.ndarray:
        """Some nodes (k,) that belong together."""
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
        """The node and all within so many edges of it."""
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
        """Actions (k,) of the nodes by the policy's chances."""
        uniform = random.random(len(nodes))[:, None]
        cumulated = self.cumulated[task]
        actions = self.devices if task == "placement" else cumulated.shape[1]
        # Chances that were rounded may add up to less than what is drawn.
        return np.minimum((cumulated[nodes] < uniform).sum(axis=1), actions - 1)

    def _place(self, decision: Decision, random: np.random.Generator) -> Decision:
        nodes = self.graph.leaders[self._choose(random)]
        placement = decision.placement.copy()
        if "placement" in self.cumulated and random.random() < SAID:
            placement[nodes] = self._draw("placement", nodes, random)
            return Decision(placement, decision.priorities, decision.fusion)
        if random.random() < 0.7:  # of the nodes only those of one device: a border moves
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
        """Put nodes before or behind another one, or all of them up or down by as much."""
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
    """A run of the nodes, up to so many, in which that of the place is."""
    length = min(int(longest ** random.random()), len(nodes))
    first = max(place - int(random.integers(length)), 0)
    return nodes[first : first + length]
