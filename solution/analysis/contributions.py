"""Compute how much each column of a table adds to a ranker's scores, for trees and linear models.

For trees these are exact SHAP values, LightGBM's `pred_contrib`. For linear models they are weight
times value. In both cases positive means slower. Two configurations of one graph are compared.

Source: Lundberg et al., "From local explanations to global understanding with explainable AI for
trees", Nature Machine Intelligence, 2020.
"""

import numpy as np

from solution.models.base import Ranker
from solution.models.linear import LinearRanker
from solution.models.trees.boosted_trees import BoostedTrees
from solution.system.errors import InputError


def explain_difference(ranker: Ranker, rows: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return how much each column adds to the scores of `rows` over the score of `reference`.

    Args:
        rows: (k, columns); a higher score means slower.
        reference: (columns,)

    Returns:
        (k, columns); the sum over columns is the difference of the scores.

    Raises InputError unless the ranker is made of trees or linear.
    """
    ranker = check_explained(ranker)
    both = np.concatenate([reference[None], rows])
    if isinstance(ranker, BoostedTrees):
        # Change of the score per unit of output: -1 if the trees predict relevance (faster is
        # higher).
        sign = ranker.score(np.ones(1), 1)[0] - ranker.score(np.zeros(1), 1)[0]
        found = sign * _contributions(ranker, both)
    else:
        found = ranker.contributions(both)
    return found[1:] - found[:1]


def check_explained(ranker: Ranker) -> BoostedTrees | LinearRanker:
    """Return the ranker; raise InputError unless it is made of trees or linear."""
    if not isinstance(ranker, BoostedTrees | LinearRanker):
        raise InputError(
            f"a {type(ranker).__name__} cannot be explained: expected trees, a linear model or a "
            "net whose costs add up, such as tile_lightgbm_001, linear_ridge_001 or "
            "layout_cost_net_001."
        )
    return ranker


def measure_importance(ranker: Ranker) -> np.ndarray:
    """Return the share (columns,) of each column in the trees' gain or in the linear weights."""
    ranker = check_explained(ranker)
    if isinstance(ranker, BoostedTrees):
        weights = ranker.fitted().feature_importance("gain")
    else:
        weights = np.abs(ranker.weights_)
    return np.asarray(weights, np.float64) / max(float(np.sum(weights)), 1e-12)


def _contributions(ranker: BoostedTrees, rows: np.ndarray) -> np.ndarray:
    return ranker.predict_rows(rows, pred_contrib=True)[:, :-1]  # the last column is the constant
