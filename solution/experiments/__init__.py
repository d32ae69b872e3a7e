"""The package's experiments: each file defines one, as the frozen value EXPERIMENT."""

# the experiments that `fastslow run` trains if no experiment or recipe is given
DEFAULTS = (
    "nothing_001",
    "layout_gnn_001",
    "layout_lightgbm_001",
    "tile_gnn_001",
    "tile_lightgbm_001",
)
