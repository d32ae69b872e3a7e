"""Published systems, each in a file, with their experiments and the numbers that they report.

Nothing of the ranking imports this package: the catalogue of kinds and the list of experiments find
it by its name.
"""

# The settings class of each kind, in this package.
KINDS = {
    "permutation_average": "wrappers.PermutationAverageSettings",
    "sublist_average": "wrappers.SublistAverageSettings",
    "prepared": "prepared.PreparedSettings",
    "tpugraphs": "tpugraphs.TpuGraphsSettings",
    "tpugraphs_tile": "tpugraphs_tile.TpuGraphsTileSettings",
    "tgraph": "tgraph.TGraphSettings",
    "residual": "residual_attention.ResidualSettings",
    "residual_tile": "residual_tile.ResidualTileSettings",
    "segment_training": "segment_training.SegmentSettings",
    "violation": "violation.ViolationSettings",
    "study_trees": "lightgbm_model.StudyTreeSettings",
    "study_least_squares": "lightgbm_model.StudyOrdinarySettings",
    "study_ridge": "lightgbm_model.StudyRidgeSettings",
    "study_lasso": "lightgbm_model.StudyLassoSettings",
}
