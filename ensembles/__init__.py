"""Merge predictions into one ranking per graph. Needs neither torch nor lightgbm."""

# A run's recipe if none is given. DEFAULT_RECIPE has the best out-of-fold score; SAMPLE_RECIPE, for
# the bundled sample and for quick looks (--limit), takes a third of the time.
DEFAULT_RECIPE = "best"
SAMPLE_RECIPE = "z_score_001"
