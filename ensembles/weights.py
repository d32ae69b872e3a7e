"""Fit weights of members on labelled graphs of one collection.

A ballot holds a graph's out-of-fold predictions by all members. A fit takes ballots and a method
and returns weights (members,), not negative, that sum to 1. Its score on these ballots is
optimistic; ensembles/search.py estimates the score on other graphs.

Sources: Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models",
ICML 2004; Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23; Akiba and others,
"Optuna: a next-generation hyperparameter optimization framework", KDD 2019.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from scipy.optimize import nnls

from ensembles.merge import check_aligned, normalise, read_groups
from ensembles.votes import METHODS, Method, combine, to_shares
from solution.domain import predictions
from solution.domain.metrics import score_ranking
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.parquet import GRAPH, read_by_graphs


@dataclass(frozen=True, eq=False)
class Ballot:
    """One graph, and every member's out-of-fold scores of its configurations."""

    collection: str
    graph: str
    # name of the graph's group: graphs that the run's folds keep together, so that no group is in
    # both a fit and its test
    group: str
    votes: dict[Method, np.ndarray]  # (members, configs): scores on the method's scale, float32
    targets: dict[Method, np.ndarray]  # (configs,): runtimes on the method's scale, float32
    runtimes: np.ndarray  # (configs,): the measured or estimated runtimes
    _scores: dict[tuple[Method, bytes], float] = field(default_factory=dict, repr=False)

    def score(self, weights: np.ndarray, method: Method) -> float:
        """Return Kaggle's score of the graph for the members merged with weights (members,)."""
        return self.score_shares(to_shares(weights), method)

    def score_shares(self, shares: np.ndarray, method: Method) -> float:
        """Return Kaggle's score of the graph, like `score`, for weights (members,) that sum to 1.
        Scores are cached, because fits on different parts of the graphs try the same weights."""
        key = method, shares.tobytes()
        if key not in self._scores:
            merged = combine(self.votes[method], shares, method).astype(np.float32)
            self._scores[key] = score_ranking(self.collection, merged, self.runtimes)
        return self._scores[key]

    def select(self, members: np.ndarray) -> "Ballot":
        """Return the ballot with only those members for which the mask (members,) is True."""
        votes = {method: vote[members] for method, vote in self.votes.items()}
        return replace(self, votes=votes, _scores={})


def mean_score(ballots: Sequence[Ballot], weights: np.ndarray, method: Method) -> float:
    """Return the mean of Kaggle's score over graphs, for members merged with weights (members,)."""
    shares = to_shares(weights)
    return float(np.mean([ballot.score_shares(shares, method) for ballot in ballots]))


def read_ballots(
    run: Run, members: Sequence[str], methods: Sequence[Method] = METHODS
) -> tuple[dict[str, list[str]], list[Ballot]]:
    """Read the out-of-fold predictions of the members. Returns, by collection, the sorted names of
    the members that predict it (the order of the rows of `Ballot.votes`); and a ballot for every
    graph. Raises InputError if a member lacks graphs that others have."""
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
        ordered = {name: frames[name] for name in names[collection]}
        ballots += make_ballots(ordered, labels, groups, methods)
    return names, ballots


def make_ballots(
    frames: dict[str, pl.DataFrame],
    labels: pl.DataFrame,
    groups: dict[tuple[str, str], str],
    methods: Sequence[Method],
) -> list[Ballot]:
    """Return a ballot for every graph of one collection.

    Args:
        frames: by member, predictions of the same configurations.
        labels: a table of collection, graph, config, runtime.
        groups: the group of each (collection, graph).
    """
    table: pl.DataFrame | None = None
    for method in methods:
        scaled = {name: normalise(frame, method) for name, frame in frames.items()}
        check_aligned(scaled)
        keys = next(iter(scaled.values())).select(predictions.REQUEST_KEYS)
        labelled = keys.join(labels, on=predictions.REQUEST_KEYS, how="left", maintain_order="left")
        missing = labelled.filter(pl.col("runtime").is_null())
        if len(missing):
            lacks = missing.row(0, named=True)
            raise InputError(
                f"{lacks['collection']}:{lacks['graph']}, configuration {lacks['config']}, has no "
                f"label, and {len(missing) - 1} more. Make the run again."
            )
        # put the runtimes on the method's scale, as if they were the scores of one model
        truth = labelled.select(
            *predictions.REQUEST_KEYS, fold=pl.lit(0), seed=pl.lit(0), score="runtime"
        )
        columns = [pl.Series(f"{method}/{name}", frame["score"]) for name, frame in scaled.items()]
        target = pl.Series(f"{method}/", normalise(truth, method)["score"])
        table = (labelled if table is None else table).with_columns(*columns, target)
    if table is None:
        return []
    ballots = []
    for (collection, graph), rows in table.group_by(GRAPH, maintain_order=True):
        votes = {m: np.stack([rows[f"{m}/{name}"].to_numpy() for name in frames]) for m in methods}
        targets = {method: rows[f"{method}/"].to_numpy() for method in methods}
        key = str(collection), str(graph)
        ballots.append(Ballot(*key, groups[key], votes, targets, rows["runtime"].to_numpy()))
    return ballots


# function that fits weights (members,) that sum to 1
Fit = Callable[[Sequence[Ballot], Method], np.ndarray]
GREEDY_STEPS = 20  # number of members that fit_greedy adds, with replacement
TRIALS = 60  # number of trials of optuna's search
SEED = 0


def fit_equal(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
    """Return equal weights (members,), whatever the ballots."""
    members = _count_members(ballots, method)
    return np.full(members, 1 / members)


def fit_best(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
    """Give all weight to the member with the best mean score; ties go to the first."""
    single = np.eye(_count_members(ballots, method))
    scores = [mean_score(ballots, weights, method) for weights in single]
    return single[int(np.argmax(scores))]


def fit_greedy(ballots: Sequence[Ballot], method: Method, steps: int = GREEDY_STEPS) -> np.ndarray:
    """Select members greedily with replacement: each step adds the member that improves the mean
    score most. The weights are the members' counts after the step with the best mean score, divided
    by their sum. Ties go to the first."""
    counts = np.zeros(_count_members(ballots, method))
    best, best_score = counts, -np.inf
    for _ in range(steps):
        tried = [counts + one for one in np.eye(len(counts))]
        scores = [mean_score(ballots, weights, method) for weights in tried]
        counts = tried[int(np.argmax(scores))]
        if max(scores) > best_score:
            best, best_score = counts, max(scores)
    return best / best.sum()


def fit_least_squares(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
    """Fit by non-negative least squares: the weighted votes approximate the scaled runtimes. Every
    graph counts the same, however many configurations it has. Weights are equal if all are 0."""
    # minimise sum_g ||V_g w - t_g||^2 / configs_g over w >= 0, with centred votes V_g, targets t_g
    blocks, targets = [], []
    for ballot in ballots:
        votes = ballot.votes[method].astype(np.float64)
        target = ballot.targets[method].astype(np.float64)
        share = 1 / np.sqrt(len(target))
        blocks.append((votes - votes.mean(axis=1, keepdims=True)).T * share)
        targets.append((target - target.mean()) * share)
    weights, _ = nnls(np.concatenate(blocks), np.concatenate(targets))
    return weights / weights.sum() if weights.sum() > 0 else fit_equal(ballots, method)


def fit_optuna(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
    """Search weights by optuna's tree-structured Parzen estimator, starting from equal weights."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    members = _count_members(ballots, method)

    def objective(trial: "optuna.Trial") -> float:
        weights = np.array([trial.suggest_float(f"{m}", 0, 1) for m in range(members)])
        return mean_score(ballots, weights, method) if weights.sum() > 0 else -np.inf

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=SEED))
    study.enqueue_trial({f"{m}": 1.0 for m in range(members)})
    study.optimize(objective, n_trials=TRIALS)
    weights = np.array([study.best_params[f"{m}"] for m in range(members)])
    return weights / weights.sum()


def shrink(fit: Fit, share: float) -> Fit:
    """Return a fit with weights (1 - share) * fitted + share * equal weights. Few graphs say little
    about weights, and equal weights are rarely far from the best."""

    def shrunk(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
        return (1 - share) * fit(ballots, method) + share * fit_equal(ballots, method)

    return shrunk


FITS: dict[str, Fit] = {
    "equal": fit_equal,
    "best": fit_best,
    "greedy": fit_greedy,
    "least_squares": fit_least_squares,
    "optuna": fit_optuna,
}


def _count_members(ballots: Sequence[Ballot], method: Method) -> int:
    return len(ballots[0].votes[method])
