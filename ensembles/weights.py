"""Fit weights of members on labelled graphs of one collection.

A fit takes ballots and a method and returns weights (members,), not negative, that sum to 1. Its
score on its training ballots is optimistic; ensembles/nested.py estimates the score on others.

Sources: Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models",
ICML 2004; Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23; Akiba and others,
"Optuna: a next-generation hyperparameter optimization framework", KDD 2019.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import nnls

from ensembles.ballots import Ballot, mean_score
from ensembles.votes import Method

Fit = Callable[[Sequence[Ballot], Method], np.ndarray]
GREEDY_STEPS = 20  # members added, with replacement: weights are multiples of 1 / 20
TRIALS = 60  # of optuna's search
SEED = 0


def fit_equal(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
    """Return equal weights."""
    members = _count_members(ballots, method)
    return np.full(members, 1 / members)


def fit_best(ballots: Sequence[Ballot], method: Method) -> np.ndarray:
    """Give all weight to the member with the best mean score; ties go to the first."""
    single = np.eye(_count_members(ballots, method))
    scores = [mean_score(ballots, weights, method) for weights in single]
    return single[int(np.argmax(scores))]


def fit_greedy(ballots: Sequence[Ballot], method: Method, steps: int = GREEDY_STEPS) -> np.ndarray:
    """Select members greedily with replacement: repeatedly add the member that improves most.

    The counts after the step with the best mean score are the weights. Ties, of members and of
    steps, go to the first.
    """
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
    """Fit by non-negative least squares: the weighted votes approximate the runtimes' ranks.

    Votes and ranks (on the method's scale) are centred in each graph, and every graph counts the
    same, however many configurations it has. Equal weights if no member helps.
    """
    blocks, targets = [], []
    for ballot in ballots:
        votes = ballot.votes[method].astype(np.float64)
        target = ballot.targets[method].astype(np.float64)
        share = 1 / np.sqrt(len(target))
        blocks.append((votes - votes.mean(axis=1, keepdims=True)).T * share)
        targets.append((target - target.mean()) * share)
    weights, _ = nnls(np.concatenate(blocks), np.concatenate(targets))
    return weights / weights.sum() if weights.sum() > 0 else fit_equal(ballots, method)


def fit_optuna(
    ballots: Sequence[Ballot], method: Method, trials: int = TRIALS, seed: int = SEED
) -> np.ndarray:
    """Search weights by optuna's tree-structured Parzen estimator; the first trial is equal
    weights."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    members = _count_members(ballots, method)

    def objective(trial: "optuna.Trial") -> float:
        weights = np.array([trial.suggest_float(f"{m}", 0, 1) for m in range(members)])
        return mean_score(ballots, weights, method) if weights.sum() > 0 else -np.inf

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({f"{m}": 1.0 for m in range(members)})
    study.optimize(objective, n_trials=trials)
    weights = np.array([study.best_params[f"{m}"] for m in range(members)])
    return weights / weights.sum()


def shrink(fit: Fit, share: float) -> Fit:
    """Return a fit whose weights are shrunk towards equal ones: `share` 0 not at all, 1 fully.

    Few graphs say little about weights, and equal weights are rarely far from the best.
    """

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
