"""Merge predictions into one ranking per graph. Needs neither torch nor lightgbm."""

# What a run trains and merges by if no recipe is given: the best one out of fold. On the bundled
# sample the other, which takes a third of the time.
DEFAULT_RECIPE = "best"
SAMPLE_RECIPE = "z_score_001"
