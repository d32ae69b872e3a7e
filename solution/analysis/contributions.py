"""How much each column of a table adds to a ranker's scores: for trees and for linear models.

Trees: LightGBM's own `pred_contrib`, which are exact SHAP values of the trees. Linear: weight times
value. Either way positive means slower, and what is compared is two configurations of one graph.

Source: Lundberg et al., "From local explanations to global understanding with explainable AI for
trees", Nature Machine Intelligence, 2020.
"""

import numpy as np

from solution.models.base import Ranker
from solution.models.linear import LinearRanker
from solution.models.trees.boosted_trees import BoostedTrees
from solution.system.errors import InputError


def explain_difference(ranker: Ranker, rows: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """What makes each of `rows` (k, columns) score higher, slower, than `reference` (columns,).

    Returns:
        (k, columns); the sum over columns is the difference of scores.

    Raises InputError where the ranker is neither trees nor linear.
    """
    ranker = check_explained(ranker)
    both = np.concatenate([reference[None], rows])
    if isinstance(ranker, BoostedTrees):
        # What one unit of output does to the score: -1 where the trees predict relevance.
        sign = ranker.score(np.ones(1), 1)[0] - ranker.score(np.zeros(1), 1)[0]
        found = sign * _contributions(ranker, both)
    else:
        found = ranker.contributions(both)
    return found[1:] - found[:1]


def check_explained(ranker: Ranker) -> BoostedTrees | LinearRanker:
    """The ranker; InputError where it is neither trees nor linear."""
    if not isinstance(ranker, BoostedTrees | LinearRanker):
        raise InputError(
            f"a {type(ranker).__name__} cannot be explained: expected trees, a linear model or a "
            "net whose costs add up, such as tile_lightgbm_001, linear_ridge_001 or "
            "layout_cost_net_001."
        )
    return ranker


def measure_importance(ranker: Ranker) -> np.ndarray:
    """The share (columns,) of each column: of the trees' gain, or of the linear weights."""
    ranker = check_explained(ranker)
    if isinstance(ranker, BoostedTrees):
        weights = ranker.fitted().feature_importance("gain")
    else:
        weights = np.abs(ranker.weights_)
    return np.asarray(weights, np.float64) / max(float(np.sum(weights)), 1e-12)


def _contributions(ranker: BoostedTrees, rows: np.ndarray) -> np.ndarray:
    return ranker.predict_rows(rows, pred_contrib=True)[:, :-1]  # the last is the constant
