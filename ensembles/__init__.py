"""From predictions to one ranking a graph. Neither torch nor lightgbm is needed from here on."""

DEFAULT_RECIPE = "z_score_001"
