"""Optimise a graph: evaluate heuristics and the policy, then search around the best decisions.

The heuristics and the policy make the first decisions. If devices are decided, local search
(local_search.py) starts from the fastest first decision, and then from the fastest one of the other
source: of a heuristic if the policy made the fastest, else of the policy. The rest of the budget
goes to annealing. The result is the best decision that was ever evaluated. It is never worse than
HEFT's decision, which is evaluated among the first three (if fusion is decided, once with every
legal fusion and once without).

Annealing changes nodes at several scales: one node, its neighbourhood, a run of nodes, a layer. A
search that changes one node at a time cannot move a layer to another device, because every
intermediate step adds transfers.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from solution.placement.baselines import divisions
from solution.placement.baselines.annealing import anneal
from solution.placement.baselines.lists import find_priorities, list_decisions
from solution.placement.evaluation import Evaluator
from solution.placement.local_search import GainPredictor, search_locally
from solution.placement.machine import Machine
from solution.placement.policy.decisions import TRIES, evaluate_repaired, find_fixed, make_decision
from solution.placement.policy.graph_inputs import find_inputs
from solution.placement.policy.network import Policy, PolicyChoice
from solution.placement.simulation.decision import FUSION_LEVELS, Decision, default_decision

LONGEST_RUN = 4  # a run of nodes that changes together has at most nodes / LONGEST_RUN nodes
MOST_HOPS = 4  # a neighbourhood reaches fewer than MOST_HOPS edges from its node
MOST_NODES = 512  # a neighbourhood that has more nodes grows no further
FROM_POLICY = 0.3  # share of changes of devices and fusion levels that are drawn from the policy
CRITICAL = 0.5  # share of changes around a node on the critical chain, which decides the runtime
WEIGHTS = {"fusion": 2, "placement": 2, "schedule": 1}  # relative frequency of each task's changes
DRAWN = 16  # maximum number of first decisions by the policy, with repairs up to 1/4 of the budget
# first and last temperature, relative to the start's seconds; low, because the start is good
COOL = 0.01, 1e-4
# prefix of the names of decisions that the policy made
POLICY = "policy"
# shares of the remaining evaluations after which the first and the second local search end
LOCAL_SHARES = 0.75, 0.9
# Number of annealing runs: LINES, or MANY_LINES if there are more than MANY evaluations per node.
# The first and the last run start from the best decision.
LINES, MANY_LINES, MANY = 3, 5, 20


class Moves:
    """Proposer of random changes of a decision, for annealing. `chances`: the policy's
    probabilities (nodes, actions) per task; if given, the share FROM_POLICY of the changes of
    devices and fusion levels is drawn from them."""

    def __init__(self, evaluator: Evaluator, chances: dict[str, np.ndarray] | None = None) -> None:
        self.graph, self.devices = evaluator.graph, len(evaluator.machine)
        self.tasks = evaluator.tasks
        weights = np.array([WEIGHTS[task] for task in self.tasks], float)
        self.often = np.cumsum(weights / weights.sum())
        # cache: the decision that was changed last, and the nodes (k,) on its critical chain
        self._critical: tuple[Decision, np.ndarray] | None = None
        self.cumulated = {task: np.cumsum(c, axis=1) for task, c in (chances or {}).items()}
        order = np.argsort(self.graph.stages, kind="stable")
        self.stages = np.split(order, np.flatnonzero(np.diff(self.graph.stages[order])) + 1)
        _, self.stage_of = np.unique(self.graph.stages, return_inverse=True)

    def __call__(
        self, evaluator: Evaluator, decision: Decision, random: np.random.Generator
    ) -> Decision:
        """Return a copy in which some related nodes have another device, priority or level."""
        if self._critical is None or self._critical[0] is not decision:
            self._critical = decision, evaluator.environment.find_critical(decision)
        task = self.tasks[int((self.often < random.random()).sum())]
        if task == "placement":
            return self._place(decision, random)
        if task == "schedule":
            return self._schedule(decision, random)
        return self._fuse(decision, random)

    def _choose(self, random: np.random.Generator) -> np.ndarray:
        """Draw related nodes (k,): one node, a node with its consumers, a neighbourhood, a run of
        nodes in topological order, or a run of nodes in one layer."""
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
        """Return the node and the nodes within `hops` edges; stop above MOST_NODES nodes."""
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
        """Draw actions (k,) for `nodes` from the policy's probabilities for `task`."""
        uniform = random.random(len(nodes))[:, None]
        cumulated = self.cumulated[task]
        actions = self.devices if task == "placement" else cumulated.shape[1]
        # limit the action, because rounding may leave all cumulated probabilities below `uniform`
        return np.minimum((cumulated[nodes] < uniform).sum(axis=1), actions - 1)

    def _place(self, decision: Decision, random: np.random.Generator) -> Decision:
        nodes = self.graph.leaders[self._choose(random)]
        placement = decision.placement.copy()
        if "placement" in self.cumulated and random.random() < FROM_POLICY:
            placement[nodes] = self._draw("placement", nodes, random)
            return Decision(placement, decision.priorities, decision.fusion)
        # mostly keep only nodes of one device, so that the move shifts a partition boundary
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
        """Give nodes a priority just above or below a random node's, or shift their priorities."""
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
        if "fusion" in self.cumulated and random.random() < FROM_POLICY:
            fusion[nodes] = self._draw("fusion", nodes, random)
        else:
            fusion[nodes] = random.integers(FUSION_LEVELS) * (random.random() < 0.8)
        return Decision(decision.placement, decision.priorities, fusion)


def _cut(nodes: np.ndarray, index: int, longest: float, random: np.random.Generator) -> np.ndarray:
    """Return a random run of at most `longest` entries of `nodes`, entry `index` among them."""
    length = min(int(longest ** random.random()), len(nodes))
    first = max(index - int(random.integers(length)), 0)
    return nodes[first : first + length]


@dataclass(frozen=True)
class Contender:
    """A decision, the name of the heuristic or policy that made it, and its simulated seconds."""

    name: str
    decision: Decision
    seconds: float


def find_first(evaluator: Evaluator) -> dict[str, Decision]:
    """Return the heuristics' decisions by name. If the schedule is decided, each comes twice: as
    made, and with upward ranks as priorities. Of decisions that are equal in the decided tasks,
    only the first is returned."""
    graph, machine = evaluator.graph, evaluator.machine
    fused = "fusion" in evaluator.tasks
    found = {"one device": default_decision(graph)}
    if "placement" in evaluator.tasks:
        listed = list_decisions(graph, machine, fused=fused)
        found["heft"] = listed["heft"]
        # also try HEFT without fusion: fusion slows some programs, and HEFT's paper has none
        if fused:
            none = np.zeros(graph.num_nodes, np.int64)
            found["heft, unfused"] = dataclasses.replace(listed["heft"], fusion=none)
        parts = {
            "layers": divisions.divide_as_a_person(graph, machine, by_cost=False),
            "cells": divisions.divide_as_a_person(graph, machine, by_cost=True),
        }
        if len(machine) > 1:
            parts["metis"] = divisions.divide_by_metis(graph, machine)
        found |= {
            name: divisions.decide_placement(graph, part, fused=fused)
            for name, part in parts.items()
        } | listed
        found |= {f"device {n}": default_decision(graph, n) for n in find_unlike(machine)}
    found["tensorflow"] = divisions.decide_tensorflow(graph)
    if "schedule" in evaluator.tasks:
        ranks = find_priorities(graph, machine)
        ranked = {
            f"{name}, ranked": dataclasses.replace(decision, priorities=ranks)
            for name, decision in found.items()
        }
        found |= ranked
    return _leave_out_copies(evaluator, found)


def find_unlike(machine: Machine) -> list[int]:
    """Return the number of the first device of each type, except the type of device 0."""
    devices = machine.devices
    return [n for n, device in enumerate(devices) if n and devices.index(device) == n]


def _leave_out_copies(evaluator: Evaluator, found: dict[str, Decision]) -> dict[str, Decision]:
    kept: dict[tuple[bytes, ...], tuple[str, Decision]] = {}
    for name, decision in found.items():
        fixed = evaluator.keep_fixed(decision)
        parts = fixed.placement[evaluator.graph.leaders], fixed.priorities, fixed.fusion
        kept.setdefault(tuple(part.tobytes() for part in parts), (name, fixed))
    return dict(kept.values())


def optimize(
    evaluator: Evaluator, policy: Policy | None, budget: int, seed: int = 0
) -> list[Contender]:
    """Search until the evaluator has counted `budget` decisions; the result is `evaluator.best`.
    Return the first decisions, of heuristics and policy, the fastest first.

    Every simulated decision counts: the heuristics' decisions (one device and HEFT first; at most
    20, and two more for each further type of device), the policy's decisions and each repair of
    them, and each step of local search and annealing. The policy, if any, also proposes changes in
    annealing if it made the fastest first decision.
    """
    left = max(budget - len(evaluator.curve), 0)
    first = list(find_first(evaluator).items())[:left]
    candidates = [Contender(name, d, evaluator.evaluate(d)) for name, d in first]
    limit = min(len(evaluator.curve) + max(1, budget // 4), budget)
    draws = min(DRAWN, limit - len(evaluator.curve))
    chances: dict[str, np.ndarray] = {}
    if policy is not None and draws > 0:
        choices = ask_policy(policy, evaluator, draws, seed)
        chances = {t: c.log_chances[0].exp().double().numpy() for t, c in choices.items()}
        candidates += _evaluate_draws(evaluator, choices, limit)
    if not candidates:
        return []
    candidates.sort(key=lambda candidate: candidate.seconds)
    if "placement" in evaluator.tasks and len(evaluator.machine) > 1:
        _search_locally(evaluator, candidates, budget - len(evaluator.curve))
    # The policy proposes changes only if it made the fastest first decision.
    leads = candidates[0].name.startswith(POLICY)
    _search(evaluator, candidates, chances if leads else None, budget - len(evaluator.curve), seed)
    return candidates


def ask_policy(
    policy: Policy, evaluator: Evaluator, draws: int, seed: int
) -> dict[str, PolicyChoice]:
    """Return the policy's actions by task for `draws` decisions: the likeliest, then samples."""
    about = find_inputs(evaluator.graph), len(evaluator.machine)
    generator, fixed = torch.Generator().manual_seed(seed), find_fixed(evaluator)
    with torch.inference_mode():
        likeliest = policy(*about, fixed=fixed)
        drawn = likeliest
        if draws > 1:
            drawn = policy(*about, draws, generator=generator, fixed=fixed)
    return {
        task: PolicyChoice(torch.cat([choice.actions, drawn[task].actions[1:]]), choice.log_chances)
        for task, choice in likeliest.items()
    }


def decide_at_once(evaluator: Evaluator, policy: Policy, seed: int = 0, most: int = TRIES) -> None:
    """Evaluate the policy's likeliest decision. While it does not fit into memory, repair it and
    evaluate it again, with at most `most` evaluations in all."""
    choices = ask_policy(policy, evaluator, 1, seed)
    evaluate_repaired(evaluator, make_decision(evaluator.base, choices, 0), most)


def find_seconds_at_once(evaluator: Evaluator, policy: Policy) -> float:
    """Return the seconds of the policy's likeliest decision, repaired if needed, at most INVALID
    times the reference. `evaluator` itself counts no evaluation."""
    asked = evaluator.start_again()
    decide_at_once(asked, policy)
    return asked.counted_seconds


def _evaluate_draws(
    evaluator: Evaluator, choices: dict[str, PolicyChoice], limit: int
) -> Iterator[Contender]:
    """Evaluate and yield the policy's decisions, the likeliest first, up to `limit` evaluations."""
    count = len(next(iter(choices.values())).actions) if choices else 0
    for number in range(count):
        left = limit - len(evaluator.curve)
        if left <= 0:
            return
        name = POLICY if number == 0 else f"{POLICY}, draw {number}"
        decision = make_decision(evaluator.base, choices, number)
        yield Contender(name, *evaluate_repaired(evaluator, decision, min(TRIES, left)))


def _search_locally(evaluator: Evaluator, candidates: list[Contender], budget: int) -> None:
    predictor = GainPredictor(evaluator)
    begun = len(evaluator.curve)
    valid = [candidate for candidate in candidates if evaluator.is_valid(candidate.seconds)]
    for candidate, share in zip(find_unlike_starts(valid), LOCAL_SHARES, strict=False):
        left = int(budget * share) - (len(evaluator.curve) - begun)
        search_locally(evaluator, predictor, candidate.decision, candidate.seconds, left)


def find_unlike_starts(candidates: list[Contender]) -> list[Contender]:
    """Return two starts: the first of `candidates` (sorted, fastest first), and the fastest from
    the other source, policy or heuristic, because local searches from similar starts end alike. If
    all have the same source, the second start is the next candidate."""
    best, others = candidates[:1], candidates[1:]
    is_policys = any(one.name.startswith(POLICY) for one in best)
    unlike = [one for one in others if one.name.startswith(POLICY) != is_policys]
    return best + (unlike or others)[:1]


def _search(
    evaluator: Evaluator,
    candidates: list[Contender],
    chances: dict[str, np.ndarray] | None,
    budget: int,
    seed: int,
) -> None:
    """Anneal in LINES or MANY_LINES runs, each with an equal share of `budget`."""
    moves = Moves(evaluator, chances)
    lines = MANY_LINES if budget > MANY * evaluator.graph.num_nodes else LINES
    for line in range(lines):
        share = budget // lines if line + 1 < lines else budget - (lines - 1) * (budget // lines)
        start = candidates[min(line, len(candidates) - 1)].decision
        begin = start if 0 < line < lines - 1 else evaluator.best
        if share > 0:  # because anneal() evaluates once even if its budget is 0
            anneal(evaluator, share, seed * lines + line, begin, moves, COOL)
