"""Experiments of the LightGBM study: trees and linear models on tables of counts."""

from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import Experiment
from solution.papers.study import (
    StudyLassoSettings,
    StudyOrdinarySettings,
    StudyRidgeSettings,
    StudyTreeSettings,
)

EXPERIMENTS = (
    Experiment(name="layout_study_lasso_001", collections=LAYOUT,
               about="Lasso on padding and counts of layout values, as in the LightGBM study.",
               ranker=StudyLassoSettings(max_rows=66_000)),
    Experiment(name="layout_study_lightgbm_001", collections=LAYOUT,
               about="Trees on padding and counts of layout values, as in the LightGBM study.",
               ranker=StudyTreeSettings(max_rows=66_000)),
    Experiment(name="layout_study_lightgbm_all_opcodes_001", collections=LAYOUT,
               about="Trees on padding, layout values and all opcodes, pruned ones too, as in the "
                     "LightGBM study.",
               ranker=StudyTreeSettings(max_rows=66_000, opcodes="all")),
    Experiment(name="layout_study_lightgbm_opcodes_001", collections=LAYOUT,
               about="Trees on padding, layout values and opcodes, as in the LightGBM study.",
               ranker=StudyTreeSettings(max_rows=66_000, opcodes="kept")),
    Experiment(name="layout_study_linear_001", collections=LAYOUT,
               about="Least squares on padding and counts of layout values, as in the LightGBM "
                     "study.",
               ranker=StudyOrdinarySettings(max_rows=66_000)),
    Experiment(name="layout_study_ridge_001", collections=LAYOUT,
               about="Ridge on padding and counts of layout values, as in the LightGBM study.",
               ranker=StudyRidgeSettings(max_rows=66_000)),
    Experiment(name="layout_study_ridge_opcodes_001", collections=LAYOUT,
               about="Ridge on padding, layout values and opcodes, as in the LightGBM study.",
               ranker=StudyRidgeSettings(max_rows=66_000, opcodes="kept")),
    Experiment(name="tile_study_lasso_001", collections=TILE,
               about="Lasso on mean node features to predict the scaled runtime, as in the "
                     "LightGBM study.",
               ranker=StudyLassoSettings()),
    Experiment(name="tile_study_lightgbm_001", collections=TILE,
               about="Trees on mean node features that predict the scaled runtime, as in the "
                     "LightGBM study.",
               ranker=StudyTreeSettings()),
    Experiment(name="tile_study_lightgbm_opcodes_001", collections=TILE,
               about="Trees on mean node features and opcodes, as in the LightGBM study.",
               ranker=StudyTreeSettings(opcodes="kept")),
    Experiment(name="tile_study_linear_001", collections=TILE,
               about="Least squares on mean node features to predict the scaled runtime, as in "
                     "the LightGBM study.",
               ranker=StudyOrdinarySettings()),
    Experiment(name="tile_study_ridge_001", collections=TILE,
               about="Ridge on mean node features to predict the scaled runtime, as in the "
                     "LightGBM study.",
               ranker=StudyRidgeSettings()),
)  # fmt: skip
