"""Merge predictions into one ranking per graph. Needs neither torch nor lightgbm."""

DEFAULT_RECIPE = "z_score_001"
