"""Search a recipe by a run's out-of-fold predictions, and estimate its score without bias.

A ballot holds the out-of-fold scores of one graph by every member (ensembles.weights). A learner
(`Choose`) fits a rule on ballots: a method, and weights for each collection.

Candidates combine a method, a way to fit weights, and a shrinkage towards equal weights. Each is
scored by nested cross-validation: the graphs are divided into parts (graphs of one group of the
run's folds stay together), and each part is scored with weights that were fitted on the other
parts. The naive score is too high, because its weights were fitted on the scored graphs. The
difference between the naive and the nested score is called the optimism.

The candidate with the best nested mean over the collections is proposed, with weights fitted on all
graphs. This choice is optimistic as well, so the score of the whole search is nested once more: the
choice itself is made on some graphs and scored on others.

Source: Varma and Simon, "Bias in error estimation when using cross-validation for model selection",
BMC Bioinformatics, 2006.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.merge import TABLE_SCHEMA
from ensembles.recipe import MAX_BYTES
from ensembles.statistics import MEAN, compare
from ensembles.votes import METHODS, Method
from ensembles.weights import FITS, Ballot, Fit, fit_best, read_ballots, shrink
from solution.domain.dividing import divide_groups
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import checksum, read_bytes, write_bytes

PARTS = 5  # number of parts into which cross-validation divides the graphs
SEED = 0
# default ways to fit weights; optuna is left out because it computes many more scores
QUICK_FITS = ("equal", "best", "greedy", "least_squares")
SHRINKAGES = (0.0, 0.5)
# label in score tables: each collection's best member, chosen on graphs that are not scored
BEST = "best member"
# label in score tables: each collection's best member, chosen on the scored graphs themselves
HINDSIGHT = "best member in hindsight"
WHOLE = "search"  # label of the whole search: the choice of a candidate, and its fit
MARK = "# Proposed by a search"  # beginning of recipe files that a search may overwrite
SMALLEST = 0.005  # members with a smaller share of the weights are left out of the recipe
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  # TOML keys that need no quotes


@dataclass(frozen=True)
class Rule:
    """A fitted merge: a method, and by collection the weights (members,)."""

    method: Method
    weights: dict[str, np.ndarray]

    def score(self, ballot: Ballot) -> float:
        """Return Kaggle's score of the ballot's graph; NaN if its collection has no weights."""
        if ballot.collection not in self.weights:
            return float("nan")
        return ballot.score(self.weights[ballot.collection], self.method)


# function that fits a Rule on ballots (labelled graphs)
Choose = Callable[[Sequence[Ballot]], Rule]


def learn(fit: Fit, method: Method) -> Choose:
    """Return a function that fits weights of the members to ballots, separately for each
    collection; the merging method is fixed."""

    def choose(ballots: Sequence[Ballot]) -> Rule:
        by_collection: dict[str, list[Ballot]] = defaultdict(list)
        for ballot in ballots:
            by_collection[ballot.collection].append(ballot)
        return Rule(method, {name: fit(graphs, method) for name, graphs in by_collection.items()})

    return choose


def divide(ballots: Sequence[Ballot], parts: int = PARTS) -> np.ndarray:
    """Divide the graphs for cross-validation: return the number (graphs,) of each graph's part.
    Graphs of one group stay together. With fewer groups than `parts`, each group is a part."""
    members: dict[str, list[str]] = defaultdict(list)
    for ballot in ballots:
        members[ballot.group].append(ballot.collection)
    part_of = divide_groups(members, min(parts, len(members)), SEED)
    return np.array([part_of[ballot.group] for ballot in ballots], int)


def estimate_nested(ballots: Sequence[Ballot], choose: Choose, parts: int = PARTS) -> np.ndarray:
    """Return nested cross-validation scores (graphs,). The graphs are divided into parts; each
    graph is scored by a rule that was fitted on all other parts. A score is NaN if all graphs of
    its collection are in one part."""
    scores = np.full(len(ballots), np.nan)
    part_of = divide(ballots, parts)
    for part in range(part_of.max() + 1):
        rest = [ballot for ballot, other in zip(ballots, part_of, strict=True) if other != part]
        if rest:
            rule = choose(rest)
            for row, ballot in enumerate(ballots):
                if part_of[row] == part:
                    scores[row] = rule.score(ballot)
    return scores


def estimate(ballots: Sequence[Ballot], choose: Choose) -> tuple[np.ndarray, np.ndarray]:
    """Return the nested and the naive scores, each (graphs,). The nested score of a graph is by a
    rule that was fitted without its part of the graphs (see `estimate_nested`), the naive score by
    the rule fitted on all graphs."""
    rule = choose(ballots)
    return estimate_nested(ballots, choose), np.array([rule.score(ballot) for ballot in ballots])


def mean_of_collections(ballots: Sequence[Ballot], scores: np.ndarray) -> float:
    """Return the mean over collections of each collection's mean score; NaN scores are ignored."""
    by_collection: dict[str, list[float]] = defaultdict(list)
    for ballot, score in zip(ballots, scores, strict=True):
        if not np.isnan(score):
            by_collection[ballot.collection].append(score)
    means = [np.mean(values) for values in by_collection.values()]
    return float(np.mean(means)) if means else float("nan")


@dataclass(frozen=True)
class Candidate:
    """One combination that a search tries: a method, a way to fit weights, and a shrinkage."""

    method: Method
    fit: str  # name of the way to fit weights: a key of FITS
    shrinkage: float = 0.0  # share of equal weights: 0 keeps the fitted weights, 1 makes them equal

    @property
    def name(self) -> str:
        """Method, fit and (unless 0) shrinkage, such as `mean_rank greedy 0.5`."""
        return f"{self.method} {self.fit}" + (f" {self.shrinkage:g}" if self.shrinkage else "")

    def learn(self) -> Choose:
        """Return a function that fits the candidate's weights to ballots."""
        return learn(shrink(FITS[self.fit], self.shrinkage), self.method)


@dataclass(frozen=True)
class Proposal:
    """The result of a search."""

    candidate: Candidate
    rule: Rule  # the candidate's method and its weights, fitted on all graphs
    members: dict[str, list[str]]  # each collection's members, in the order of the weights
    # TABLE_SCHEMA: nested scores of the candidates, WHOLE and BEST; naive scores of HINDSIGHT
    table: pl.DataFrame
    # a row per candidate and for WHOLE: mean nested and naive score, optimism, and the
    # probabilities to beat BEST and HINDSIGHT
    candidates: pl.DataFrame

    def shares(self) -> dict[str, dict[str, float]]:
        """Return by collection the members' shares of the weights, without those below SMALLEST."""
        return {
            collection: {
                name: float(share)
                for name, share in zip(names, self.rule.weights[collection], strict=True)
                if share >= SMALLEST
            }
            for collection, names in self.members.items()
        }


def list_candidates(
    methods: Sequence[Method] = METHODS,
    fits: Sequence[str] = QUICK_FITS,
    shrinkages: Sequence[float] = SHRINKAGES,
) -> list[Candidate]:
    """Return a candidate for every combination of method, fit and shrinkage, ordered by `fits`. By
    default the simplest fits come first. The fit "equal" is not combined with shrinkages, because
    equal weights cannot be shrunk."""
    unknown = [name for name in fits if name not in FITS]
    if unknown:
        raise InputError(f"{unknown[0]!r} fits no weights. There are: {', '.join(FITS)}.")
    return [
        Candidate(method, fit, shrinkage)
        for fit in fits
        for shrinkage in ((0.0,) if fit == "equal" else shrinkages)
        for method in methods
    ]


def learn_choice(candidates: Sequence[Candidate]) -> Choose:
    """Return a function that finds the candidate with the best nested score and fits it."""

    def choose(ballots: Sequence[Ballot]) -> Rule:
        nested = [estimate_nested(ballots, candidate.learn()) for candidate in candidates]
        return choose_best(candidates, ballots, nested).learn()(ballots)

    return choose


def choose_best(
    candidates: Sequence[Candidate], ballots: Sequence[Ballot], nested: Sequence[np.ndarray]
) -> Candidate:
    """Return the candidate with the best mean of nested scores; ties go to the first. `nested`: the
    nested scores (graphs,) of each candidate."""
    means = [mean_of_collections(ballots, scores) for scores in nested]
    return candidates[int(np.argmax(np.nan_to_num(means, nan=-np.inf)))]


def search(run: Run, members: Sequence[str], candidates: Sequence[Candidate]) -> Proposal:
    """Choose the best candidate, and fit its members' weights on all graphs of the run. Raises
    InputError if a member lacks graphs that others have, or all members' scores are constant."""
    names, ballots = read_ballots(run, members, sorted({c.method for c in candidates}))
    names, ballots = drop_constants(names, ballots)
    if not ballots:
        raise InputError(f"none of {', '.join(members)} ranks anything. Choose other experiments.")
    found = {candidate.name: estimate(ballots, candidate.learn()) for candidate in candidates}
    naive = {name: mean_of_collections(ballots, fitted) for name, (_, fitted) in found.items()}
    scores = {name: nested for name, (nested, _) in found.items()}
    proposed = choose_best(candidates, ballots, [scores[c.name] for c in candidates])
    naive[WHOLE] = naive[proposed.name]
    # nested score of the whole search: for each part of the graphs, search on the other parts
    scores[WHOLE] = estimate_nested(ballots, learn_choice(candidates))
    scores[BEST], scores[HINDSIGHT] = estimate(ballots, learn(fit_best, candidates[0].method))
    table = _tabulate(ballots, scores)
    lines = _compare_all(table, naive)
    return Proposal(proposed, proposed.learn()(ballots), names, table, lines)


def drop_constants(
    names: Mapping[str, list[str]], ballots: Sequence[Ballot]
) -> tuple[dict[str, list[str]], list[Ballot]]:
    """Drop members whose scores are constant in every graph of a collection. Collections without a
    remaining member are dropped, too."""
    kept: dict[str, list[str]] = {}
    remaining: list[Ballot] = []
    for collection, members in names.items():
        graphs = [ballot for ballot in ballots if ballot.collection == collection]
        votes = [next(iter(ballot.votes.values())) for ballot in graphs]
        # (members,) bool: False for a member whose scores are all equal inside every graph
        varies = np.any([np.ptp(vote, axis=1) > 0 for vote in votes], axis=0)
        if varies.any():
            kept[collection] = [
                name for name, varied in zip(members, varies, strict=True) if varied
            ]
            remaining += [ballot.select(varies) for ballot in graphs]
    return kept, remaining


def check_replaceable(path: Path) -> None:
    """Raise InputError if the path is a file that no search has written."""
    if path.exists() and not read_bytes(path, "a recipe", MAX_BYTES).startswith(MARK.encode()):
        raise InputError(
            f"{path}: exists already, and was not written by a search (it does not begin with "
            f"{MARK!r}). Give another --out."
        )


def write_recipe(proposal: Proposal, path: Path, fallback: str | None, run: Run) -> None:
    """Write a search's proposal for the run as a recipe file, atomically."""
    first, *others = proposal.shares().items()
    found = proposal.candidates.filter(pl.col("candidate") == WHOLE).row(0, named=True)
    lines = [
        f"{MARK}: {proposal.candidate.name}. Mean over the collections, the choice",
        f"# itself made on other graphs: {found['nested']:.4f}; on the same: {found['naive']:.4f}.",
        f'method = "{proposal.candidate.method}"',
        *([f"fallback = {json.dumps(fallback)}"] if fallback else []),
        f'fitted_on = "{checksum(run.labels)}"',
        f"nested = {found['nested']:.6f}",
        "",
        "[members]",
        *_list_shares(first[1]),
    ]
    for collection, shares in others:
        if shares != first[1]:
            lines += ["", f'[collections."{collection}"]', *_list_shares(shares)]
    write_bytes(("\n".join(lines) + "\n").encode(), path)


def _list_shares(shares: Mapping[str, float]) -> list[str]:
    return [
        f"{name if BARE_KEY.fullmatch(name) else json.dumps(name)} = {share:.4f}"
        for name, share in shares.items()
    ]


def _tabulate(ballots: Sequence[Ballot], scores: Mapping[str, np.ndarray]) -> pl.DataFrame:
    """Return a score table of the graphs that have all scores. A graph has no nested score if all
    graphs of its collection are in one part."""
    known = ~np.isnan(np.stack(list(scores.values()))).any(axis=0)
    rows = [
        (ballot.collection, ballot.graph, ballot.group, name, values[position])
        for position, ballot in enumerate(ballots)
        if known[position]
        for name, values in scores.items()
    ]
    return pl.DataFrame(rows, schema=TABLE_SCHEMA, orient="row")


def _compare_all(table: pl.DataFrame, naive: Mapping[str, float]) -> pl.DataFrame:
    """Return the table `Proposal.candidates`. `table`: nested scores of the graphs. `naive`: naive
    mean score of each candidate and of WHOLE. Raises InputError if `table` is empty."""
    if table.is_empty():
        raise InputError(
            "every collection has graphs of one group only: weights cannot be fitted on "
            "some graphs and scored on others. Use a recipe of equal weights."
        )
    rows = []
    means = table.group_by("collection", "member").agg(pl.col("score").mean())
    overall = dict(means.group_by("member").agg(pl.col("score").mean()).iter_rows())
    for name, looks in naive.items():
        beats = [
            compare(table, name, other).filter(pl.col("collection") == MEAN)["probability"].item()
            for other in (BEST, HINDSIGHT)
        ]
        rows.append((name, overall[name], looks, looks - overall[name], *beats))
    columns = ["candidate", "nested", "naive", "optimism", "beats_best", "beats_hindsight"]
    return pl.DataFrame(rows, schema=columns, orient="row")
