"""Optimise a graph: the heuristics' decisions, the policy's, then a search around the best.

The best decision that was ever evaluated is the result, so it is never worse than HEFT's, which is
among the first.
"""

import dataclasses
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
from solution.placement.moves import Moves
from solution.placement.policy.decisions import make_decision, repair
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Choice, Policy
from solution.placement.simulation.decision import Decision, default_decision

DRAWN = 16  # decisions of the policy among the first, at most a quarter of the evaluations
COOL = 0.01  # temperature over the first seconds; the start is good
POLICY = "policy"  # whose candidates' names begin so
LINES = 3  # searches one after the other: from the best, from the second best, from the best of all


@dataclass(frozen=True)
class Candidate:
    """A decision with a name for its maker."""

    name: str
    decision: Decision
    seconds: float


def find_first(evaluator: Evaluator) -> dict[str, Decision]:
    """The decisions of the heuristics by name, each in its maker's order and by upward rank."""
    graph, machine = evaluator.graph, evaluator.machine
    fused = "fusion" in evaluator.tasks
    found = {"tensorflow": decide_tensorflow(graph), "one device": default_decision(graph)}
    if "placement" in evaluator.tasks:
        found |= list_decisions(graph, machine, fused=fused)
        parts = {
            "layers": divide_as_a_person(graph, machine, by_cost=False),
            "cells": divide_as_a_person(graph, machine, by_cost=True),
        }
        if len(machine) > 1:
            parts["metis"] = divide_by_metis(graph, machine)
        found |= {name: place(graph, part, fused=fused) for name, part in parts.items()}
    if "schedule" in evaluator.tasks:
        ranks = rank_places(graph, machine)
        ranked = {
            f"{name}, ranked": dataclasses.replace(decision, priorities=ranks)
            for name, decision in found.items()
        }
        found |= ranked
    return found


def optimize(
    evaluator: Evaluator, policy: Policy | None, budget: int, seed: int = 0
) -> list[Candidate]:
    """Evaluate at most `budget` decisions; `evaluator.best` is the result.

    Args:
        policy: draws decisions, and changes where one of them is the best of the first; without
            one, only the heuristics are searched around.

    Returns:
        The first decisions, the best first.
    """
    first = find_first(evaluator)
    candidates = [Candidate(name, d, evaluator.evaluate(d)) for name, d in first.items()]
    chances: dict[str, np.ndarray] = {}
    if policy is not None:
        choices = ask(policy, evaluator, min(DRAWN, max(1, budget // 4)), seed)
        chances = {t: c.log_chances[0].exp().double().numpy() for t, c in choices.items()}
        for place_, decision in enumerate(_draw(evaluator, choices)):
            name = POLICY if place_ == 0 else f"{POLICY}, draw {place_}"
            candidates.append(Candidate(name, decision, evaluator.evaluate(decision)))
    candidates.sort(key=lambda candidate: candidate.seconds)
    # A policy that no heuristic needs has nothing to say of changes either.
    leads = candidates[0].name.startswith(POLICY)
    _search(evaluator, candidates, chances if leads else None, budget - len(evaluator.curve), seed)
    return candidates


def ask(policy: Policy, evaluator: Evaluator, draws: int, seed: int) -> dict[str, Choice]:
    """What the policy says of the tasks that are asked for: the likeliest, then draws."""
    inputs, devices = find_inputs(evaluator.graph), len(evaluator.machine)
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        likeliest = policy(inputs, devices)
        drawn = policy(inputs, devices, draws, generator=generator) if draws > 1 else likeliest
    return {
        task: Choice(torch.cat([likeliest[task].actions, drawn[task].actions[1:]]),
                     likeliest[task].log_chances)
        for task in likeliest if task in evaluator.tasks
    }  # fmt: skip


def decide_at_once(evaluator: Evaluator, policy: Policy, seed: int = 0) -> None:
    """Evaluate the likeliest decision of the policy, mended where it does not fit."""
    choices = ask(policy, evaluator, 1, seed)
    evaluator.evaluate(_draw(evaluator, choices)[0])


def _draw(evaluator: Evaluator, choices: dict[str, Choice]) -> list[Decision]:
    count = len(next(iter(choices.values())).actions) if choices else 0
    made = [make_decision(evaluator.base, choices, k) for k in range(count)]
    return [repair(evaluator.environment, evaluator.keep_fixed(decision)) for decision in made]


def _search(
    evaluator: Evaluator,
    candidates: list[Candidate],
    chances: dict[str, np.ndarray] | None,
    budget: int,
    seed: int,
) -> None:
    if budget <= 0:
        return
    moves = Moves(evaluator, chances)
    starts = [candidates[0].decision, candidates[min(1, len(candidates) - 1)].decision, None]
    for line, start in enumerate(starts):
        share = budget // LINES if line + 1 < LINES else budget - (LINES - 1) * (budget // LINES)
        begin = start if start is not None else evaluator.best
        anneal(evaluator, share, seed * LINES + line, begin, moves, hot=COOL)
