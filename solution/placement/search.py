"""Optimise a graph: the heuristics' decisions, the policy's, then a search around the best.

Where devices are decided the search begins by relieving the best, and the best of another maker;
the rest is annealing. The best decision that was ever evaluated is the result, so it is never worse
than HEFT's, which is among the first three, fused and, where fusion is asked for, unfused, too.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from solution.placement.baselines.divisions import (
    decide_tensorflow,
    divide_as_a_person,
    divide_by_metis,
    place,
)
from solution.placement.baselines.lists import list_decisions, rank_places
from solution.placement.baselines.searches import anneal
from solution.placement.evaluation import Evaluator
from solution.placement.machine import Machine
from solution.placement.moves import Moves
from solution.placement.policy.decisions import (
    TRIES,
    evaluate_mended,
    find_fixed,
    make_decision,
)
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Choice, Policy
from solution.placement.relief import Relief, relieve
from solution.placement.simulation.decision import Decision, default_decision

DRAWN = 16  # decisions of the policy among the first; with mending a quarter of the evaluations
COOL = 0.01, 1e-4  # temperatures over the first seconds: changes are large, the start is good
POLICY = "policy"  # whose candidates' names begin so
# Of the evaluations that the first decisions leave: by when relieving the best of them ends, and
# by when relieving the best of another maker.
RELIEF = 0.75, 0.9
# Annealings one after the other: the first and the last from the best of all, those between from
# the next of the first decisions; more of them where there are many evaluations for each node.
LINES, MANY_LINES, MANY = 3, 5, 20


@dataclass(frozen=True)
class Candidate:
    """A decision with a name for its maker."""

    name: str
    decision: Decision
    seconds: float


def find_first(evaluator: Evaluator) -> dict[str, Decision]:
    """The decisions of the heuristics by name, each in its maker's order and by upward rank.

    Of those that are the same where only these tasks are asked for, the first one stays.
    """
    graph, machine = evaluator.graph, evaluator.machine
    fused = "fusion" in evaluator.tasks
    found = {"one device": default_decision(graph)}
    if "placement" in evaluator.tasks:
        listed = list_decisions(graph, machine, fused=fused)
        found["heft"] = listed["heft"]
        if fused:  # on some programs fusion loses, and HEFT's own paper knows none
            none = np.zeros(graph.num_nodes, np.int64)
            found["heft, unfused"] = dataclasses.replace(listed["heft"], fusion=none)
        parts = {
            "layers": divide_as_a_person(graph, machine, by_cost=False),
            "cells": divide_as_a_person(graph, machine, by_cost=True),
        }
        if len(machine) > 1:
            parts["metis"] = divide_by_metis(graph, machine)
        found |= {name: place(graph, part, fused=fused) for name, part in parts.items()} | listed
        found |= {f"device {n}": default_decision(graph, n) for n in find_unlike(machine)}
    found["tensorflow"] = decide_tensorflow(graph)
    if "schedule" in evaluator.tasks:
        ranks = rank_places(graph, machine)
        ranked = {
            f"{name}, ranked": dataclasses.replace(decision, priorities=ranks)
            for name, decision in found.items()
        }
        found |= ranked
    return _leave_out_copies(evaluator, found)


def find_unlike(machine: Machine) -> list[int]:
    """The first device of each kind but the first device's."""
    devices = machine.devices
    return [n for n, device in enumerate(devices) if n and devices.index(device) == n]


def _leave_out_copies(evaluator: Evaluator, found: dict[str, Decision]) -> dict[str, Decision]:
    kept: dict[tuple[bytes, ...], tuple[str, Decision]] = {}
    for name, decision in found.items():
        own = evaluator.keep_fixed(decision)
        parts = own.placement[evaluator.graph.leaders], own.priorities, own.fusion
        kept.setdefault(tuple(part.tobytes() for part in parts), (name, own))
    return dict(kept.values())


def optimize(
    evaluator: Evaluator, policy: Policy | None, budget: int, seed: int = 0
) -> list[Candidate]:
    """Evaluate until the evaluator has counted `budget` decisions; `evaluator.best` is the result.

    All are counted: the heuristics' (at most 20, and two for each further kind of device; one
    device's and HEFT's first; with a smaller budget the rest of them is left out), each try of
    mending one of the policy's, what relieving moves, and the starts of the searches.

    Args:
        policy: draws decisions, and changes where one of them is the best of the first; without
            one, only the heuristics are searched around.

    Returns:
        The first decisions, the best first.
    """
    left = max(budget - len(evaluator.curve), 0)
    first = list(find_first(evaluator).items())[:left]
    candidates = [Candidate(name, d, evaluator.evaluate(d)) for name, d in first]
    limit = min(len(evaluator.curve) + max(1, budget // 4), budget)
    draws = min(DRAWN, limit - len(evaluator.curve))
    chances: dict[str, np.ndarray] = {}
    if policy is not None and draws > 0:
        choices = ask(policy, evaluator, draws, seed)
        chances = {t: c.log_chances[0].exp().double().numpy() for t, c in choices.items()}
        candidates += _evaluate_draws(evaluator, choices, limit)
    if not candidates:
        return []
    candidates.sort(key=lambda candidate: candidate.seconds)
    if "placement" in evaluator.tasks and len(evaluator.machine) > 1:
        _relieve(evaluator, candidates, budget - len(evaluator.curve))
    # A policy that no heuristic needs has nothing to say of changes either.
    leads = candidates[0].name.startswith(POLICY)
    _search(evaluator, candidates, chances if leads else None, budget - len(evaluator.curve), seed)
    return candidates


def ask(policy: Policy, evaluator: Evaluator, draws: int, seed: int) -> dict[str, Choice]:
    """What the policy says of the tasks that are asked for: the likeliest, then draws."""
    about = find_inputs(evaluator.graph), len(evaluator.machine)
    generator, fixed = torch.Generator().manual_seed(seed), find_fixed(evaluator)
    with torch.inference_mode():
        likeliest = policy(*about, fixed=fixed)
        drawn = likeliest
        if draws > 1:
            drawn = policy(*about, draws, generator=generator, fixed=fixed)
    return {
        task: Choice(torch.cat([own.actions, drawn[task].actions[1:]]), own.log_chances)
        for task, own in likeliest.items()
    }


def decide_at_once(evaluator: Evaluator, policy: Policy, seed: int = 0, most: int = TRIES) -> None:
    """Evaluate the likeliest decision of the policy, mended where it does not fit; each of at most
    `most` tries is an evaluation."""
    choices = ask(policy, evaluator, 1, seed)
    evaluate_mended(evaluator, make_decision(evaluator.base, choices, 0), most)


def find_seconds_at_once(evaluator: Evaluator, policy: Policy) -> float:
    """Seconds of the policy's likeliest decision; of one that does not fit what it counts as.

    Nothing is counted: the evaluator is asked anew.
    """
    asked = evaluator.start_again()
    decide_at_once(asked, policy)
    return asked.counted_seconds


def _evaluate_draws(
    evaluator: Evaluator, choices: dict[str, Choice], limit: int
) -> Iterator[Candidate]:
    """The policy's decisions, the likeliest first, until `limit` evaluations are counted."""
    count = len(next(iter(choices.values())).actions) if choices else 0
    for place_ in range(count):
        left = limit - len(evaluator.curve)
        if left <= 0:
            return
        name = POLICY if place_ == 0 else f"{POLICY}, draw {place_}"
        decision = make_decision(evaluator.base, choices, place_)
        yield Candidate(name, *evaluate_mended(evaluator, decision, min(TRIES, left)))


def _relieve(evaluator: Evaluator, candidates: list[Candidate], budget: int) -> None:
    relief = Relief(evaluator)
    begun = len(evaluator.curve)
    valid = [candidate for candidate in candidates if evaluator.is_valid(candidate.seconds)]
    for candidate, share in zip(find_unlike_starts(valid), RELIEF, strict=False):
        left = int(budget * share) - (len(evaluator.curve) - begun)
        relieve(evaluator, relief, candidate.decision, candidate.seconds, left)


def find_unlike_starts(candidates: list[Candidate]) -> list[Candidate]:
    """The best, and the best that another than its maker made, the policy or a heuristic.

    What the policy draws is much alike: relieving all of it ends in one place. Where all are one
    maker's, the two best.
    """
    best, others = candidates[:1], candidates[1:]
    is_policys = any(one.name.startswith(POLICY) for one in best)
    unlike = [one for one in others if one.name.startswith(POLICY) != is_policys]
    return best + (unlike or others)[:1]


def _search(
    evaluator: Evaluator,
    candidates: list[Candidate],
    chances: dict[str, np.ndarray] | None,
    budget: int,
    seed: int,
) -> None:
    moves = Moves(evaluator, chances)
    lines = MANY_LINES if budget > MANY * evaluator.graph.num_nodes else LINES
    for line in range(lines):
        share = budget // lines if line + 1 < lines else budget - (lines - 1) * (budget // lines)
        start = candidates[min(line, len(candidates) - 1)].decision
        begin = start if 0 < line < lines - 1 else evaluator.best
        if share > 0:  # the first decision of a line is evaluated in any case
            anneal(evaluator, share, seed * lines + line, begin, moves, COOL)
