"""Stacked out-of-fold predictions of labelled graphs, as arrays for fitting weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from ensembles.merge import check_aligned, normalise, read_groups
from ensembles.votes import METHODS, Method, combine, to_shares
from solution.domain import predictions
from solution.domain.metrics import score_ranking
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.parquet import read_by_graphs


@dataclass(frozen=True, eq=False)
class Ballot:
    """One graph, and every member's out-of-fold scores of its configurations."""

    collection: str
    graph: str
    group: str  # as the run's folds were drawn; a fit and its test never share a group
    votes: dict[Method, np.ndarray]  # (members, configs) on the method's scale, float32
    targets: dict[Method, np.ndarray]  # (configs,) the runtimes on the same scale, float32
    runtimes: np.ndarray  # (configs,)
    _scores: dict[tuple[Method, bytes], float] = field(default_factory=dict, repr=False)

    def score(self, weights: np.ndarray, method: Method) -> float:
        """Return Kaggle's score of the graph for the members merged with weights (members,)."""
        return self.score_shares(to_shares(weights), method)

    def score_shares(self, shares: np.ndarray, method: Method) -> float:
        """Return the same score for weights that sum to 1.

        It is cached, because fits on different parts of the graphs try the same weights.
        """
        key = method, shares.tobytes()
        if key not in self._scores:
            merged = combine(self.votes[method], shares, method).astype(np.float32)
            self._scores[key] = score_ranking(self.collection, merged, self.runtimes)
        return self._scores[key]

    def select(self, members: np.ndarray) -> "Ballot":
        """Return the same graph with only the members of a mask (members,)."""
        votes = {method: vote[members] for method, vote in self.votes.items()}
        return replace(self, votes=votes, _scores={})


def mean_score(ballots: Sequence[Ballot], weights: np.ndarray, method: Method) -> float:
    """Return the mean score over graphs of the members merged with weights (members,)."""
    shares = to_shares(weights)
    return float(np.mean([ballot.score_shares(shares, method) for ballot in ballots]))


def read_ballots(
    run: Run, members: Sequence[str], methods: Sequence[Method] = METHODS
) -> tuple[dict[str, list[str]], list[Ballot]]:
    """Return, by collection, the sorted names of its members; and a ballot for every graph.

    Raises:
        InputError: a member lacks graphs that others have.
    """
    labels = predictions.read(run.labels)
    groups = {
        (collection, graph): group for collection, graph, group in read_groups(run).iter_rows()
    }
    paths = {name: run.predictions(name, "out_of_fold") for name in members}
    present = {name: path for name, path in paths.items() if path.is_file()}
    if not present:
        raise InputError(f"{run.folder}: has no predictions of {', '.join(members)}. Make a run.")
    names: dict[str, list[str]] = {}
    ballots: list[Ballot] = []
    for collection, frames in read_by_graphs(present):
        names[collection] = sorted(frames)
        own = {name: frames[name] for name in names[collection]}
        ballots += make_ballots(own, labels, groups, methods)
    return names, ballots


def make_ballots(
    frames: dict[str, pl.DataFrame],
    labels: pl.DataFrame,
    groups: dict[tuple[str, str], str],
    methods: Sequence[Method],
) -> list[Ballot]:
    """Return the ballots of the graphs of one collection.

    Args:
        frames: by member, predictions of the same configurations.
        labels: collection, graph, config, runtime.
        groups: by collection and graph: the structure, or the graph's name if folds are by graph.
    """
    table: pl.DataFrame | None = None
    for method in methods:
        scaled = {name: normalise(frame, method) for name, frame in frames.items()}
        check_aligned(scaled)
        keys = next(iter(scaled.values())).select(predictions.REQUEST_KEYS)
        labelled = keys.join(labels, on=predictions.REQUEST_KEYS, how="left", maintain_order="left")
        _check_labels(labelled)
        truth = labelled.select(
            *predictions.REQUEST_KEYS, fold=pl.lit(0), seed=pl.lit(0), score="runtime"
        )
        columns = [pl.Series(f"{method}/{name}", frame["score"]) for name, frame in scaled.items()]
        target = pl.Series(f"{method}/", normalise(truth, method)["score"])
        table = (labelled if table is None else table).with_columns(*columns, target)
    if table is None:
        return []
    return [
        _make_ballot((str(key[0]), str(key[1])), own, list(frames), groups, methods)
        for key, own in table.group_by("collection", "graph", maintain_order=True)
    ]


def _make_ballot(
    key: tuple[str, str],
    table: pl.DataFrame,
    names: list[str],
    groups: dict[tuple[str, str], str],
    methods: Sequence[Method],
) -> Ballot:
    votes = {m: np.stack([table[f"{m}/{name}"].to_numpy() for name in names]) for m in methods}
    targets = {method: table[f"{method}/"].to_numpy() for method in methods}
    return Ballot(*key, groups[key], votes, targets, table["runtime"].to_numpy())


def _check_labels(labelled: pl.DataFrame) -> None:
    missing = labelled.filter(pl.col("runtime").is_null())
    if len(missing):
        lacks = missing.row(0, named=True)
        raise InputError(
            f"{lacks['collection']}:{lacks['graph']}, configuration {lacks['config']}, has no "
            f"label, and {len(missing) - 1} more. Make the run again."
        )
