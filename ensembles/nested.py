"""What fitted weights reach on graphs that they were not fitted on.

The graphs are divided into parts, those of one group together: of one structure, or only copies of
one graph, as the run's folds were drawn. For every part, weights are fitted on the other parts and
scored on it. The naive number, of weights scored on the graphs that they were fitted on, is higher
by the optimism. The same holds for the choice among candidates, so that a search is one more thing
to be learned on some graphs and scored on others.

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
    """A method, and by collection the weights (members,)."""

    method: Method
    weights: dict[str, np.ndarray]

    def score(self, ballot: Ballot) -> float:
        """Kaggle's score of the graph; NaN where nothing was learned of its collection."""
        if ballot.collection not in self.weights:
            return float("nan")
        return ballot.score(self.weights[ballot.collection], self.method)


Choose = Callable[[Sequence[Ballot]], Rule]  # learns a rule from labelled graphs


@dataclass(frozen=True)
class Estimate:
    """Scores (graphs,) in the order of the ballots."""

    nested: np.ndarray  # by rules that have seen neither the graph nor one of its group
    naive: np.ndarray  # by the rule that has seen all of them


def learn(fit: Fit, method: Method) -> Choose:
    """The rule of one method whose weights are fitted collection by collection."""

    def choose(ballots: Sequence[Ballot]) -> Rule:
        own: dict[str, list[Ballot]] = defaultdict(list)
        for ballot in ballots:
            own[ballot.collection].append(ballot)
        return Rule(method, {name: fit(graphs, method) for name, graphs in own.items()})

    return choose


def divide(ballots: Sequence[Ballot], parts: int = PARTS, seed: int = SEED) -> np.ndarray:
    """The part (graphs,) of every graph; graphs of one group stay together.

    Groups are divided as solution.domain.dividing says; fewer parts than asked for where there are
    fewer groups.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for ballot in ballots:
        members[ballot.group].append(ballot.collection)
    part_of = divide_groups(members, min(parts, len(members)), seed)
    return np.array([part_of[ballot.group] for ballot in ballots], int)


def estimate_nested(
    ballots: Sequence[Ballot], choose: Choose, parts: int = PARTS, seed: int = SEED
) -> np.ndarray:
    """The score (graphs,) of every graph by a rule that was chosen on the other parts.

    NaN for the graphs of a collection that only one part has.
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
    """The nested scores, and the naive ones beside them."""
    rule = choose(ballots)
    naive = np.array([rule.score(ballot) for ballot in ballots])
    return Estimate(estimate_nested(ballots, choose, parts, seed), naive)


def mean_of_collections(ballots: Sequence[Ballot], scores: np.ndarray) -> float:
    """The mean over collections of the mean over graphs of scores (graphs,); NaN counts nowhere."""
    own: dict[str, list[float]] = defaultdict(list)
    for ballot, score in zip(ballots, scores, strict=True):
        if not np.isnan(score):
            own[ballot.collection].append(score)
    return float(np.mean([np.mean(values) for values in own.values()])) if own else float("nan")
