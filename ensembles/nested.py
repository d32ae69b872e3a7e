"""Nested cross-validation: the scores of fitted weights on graphs that they were not fitted on.

The graphs are divided into parts. Graphs of one group (one structure, or copies of one graph, as
the run's folds were drawn) stay together. For every part, weights are fitted on the other parts and
scored on it. The naive number, of weights scored on the graphs that they were fitted on, is higher
by the optimism. The choice among candidates is optimistic as well, so a whole search can also be
run on some graphs and scored on others.

Source: Varma and Simon, "Bias in error estimation when using cross-validation for model selection",
BMC Bioinformatics, 2006.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ensembles.ballots import Ballot
from ensembles.votes import Method
from ensembles.weights import Fit
from solution.domain.dividing import divide_groups

PARTS = 5
SEED = 0


@dataclass(frozen=True)
class Rule:
    """A method, and weights (members,) by collection."""

    method: Method
    weights: dict[str, np.ndarray]

    def score(self, ballot: Ballot) -> float:
        """Return Kaggle's score of the graph; NaN if there are no weights for its collection."""
        if ballot.collection not in self.weights:
            return float("nan")
        return ballot.score(self.weights[ballot.collection], self.method)


Choose = Callable[[Sequence[Ballot]], Rule]  # fits a rule on labelled graphs


@dataclass(frozen=True)
class Estimate:
    """Scores (graphs,) in the order of the ballots."""

    nested: np.ndarray  # by rules fitted without the graph and its group
    naive: np.ndarray  # by the rule fitted on all graphs


def learn(fit: Fit, method: Method) -> Choose:
    """Return a learner that fits the weights of one method for each collection."""

    def choose(ballots: Sequence[Ballot]) -> Rule:
        own: dict[str, list[Ballot]] = defaultdict(list)
        for ballot in ballots:
            own[ballot.collection].append(ballot)
        return Rule(method, {name: fit(graphs, method) for name, graphs in own.items()})

    return choose


def divide(ballots: Sequence[Ballot], parts: int = PARTS, seed: int = SEED) -> np.ndarray:
    """Return the part (graphs,) of every graph; graphs of one group stay together.

    Groups are divided by solution.domain.dividing, into fewer parts if there are fewer groups.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for ballot in ballots:
        members[ballot.group].append(ballot.collection)
    part_of = divide_groups(members, min(parts, len(members)), seed)
    return np.array([part_of[ballot.group] for ballot in ballots], int)


def estimate_nested(
    ballots: Sequence[Ballot], choose: Choose, parts: int = PARTS, seed: int = SEED
) -> np.ndarray:
    """Return the score (graphs,) of every graph by a rule that was fitted on the other parts.

    NaN for the graphs of a collection that lies in one part only.
    """
    scores = np.full(len(ballots), np.nan)
    part_of = divide(ballots, parts, seed)
    for part in range(part_of.max() + 1):
        rest = [ballot for ballot, own in zip(ballots, part_of, strict=True) if own != part]
        if rest:
            rule = choose(rest)
            for position, ballot in enumerate(ballots):
                if part_of[position] == part:
                    scores[position] = rule.score(ballot)
    return scores


def estimate(
    ballots: Sequence[Ballot], choose: Choose, parts: int = PARTS, seed: int = SEED
) -> Estimate:
    """Return the nested and the naive scores."""
    rule = choose(ballots)
    naive = np.array([rule.score(ballot) for ballot in ballots])
    return Estimate(estimate_nested(ballots, choose, parts, seed), naive)


def mean_of_collections(ballots: Sequence[Ballot], scores: np.ndarray) -> float:
    """Return the mean over collections of the mean over graphs of scores (graphs,), without NaN."""
    own: dict[str, list[float]] = defaultdict(list)
    for ballot, score in zip(ballots, scores, strict=True):
        if not np.isnan(score):
            own[ballot.collection].append(score)
    return float(np.mean([np.mean(values) for values in own.values()])) if own else float("nan")
