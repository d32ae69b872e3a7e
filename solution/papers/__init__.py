"""Published systems, each in a file, with their experiments and the numbers that they report.

No other package imports this one. The catalogue of models and the list of experiments load it by
its name.
"""

# {kind of model, as in the file of a saved model: path of its settings class}
KINDS = {
    "contraction_trees": "solution.papers.prepared.ContractionSettings",
    "sublist_average": "solution.papers.wrappers.SublistAverageSettings",
    "prepared": "solution.papers.prepared.PreparedSettings",
    "tpugraphs": "solution.papers.tpugraphs.TpuGraphsSettings",
    "tpugraphs_tile": "solution.papers.tpugraphs.TpuGraphsTileSettings",
    "tgraph": "solution.papers.tgraph.TGraphSettings",
    "residual": "solution.papers.residual.ResidualSettings",
    "residual_tile": "solution.papers.residual.ResidualTileSettings",
    "segment_training": "solution.papers.segment_training.SegmentSettings",
    "violation": "solution.papers.violation.ViolationSettings",
    "study_trees": "solution.papers.study.StudyTreeSettings",
    "study_least_squares": "solution.papers.study.StudyOrdinarySettings",
    "study_ridge": "solution.papers.study.StudyRidgeSettings",
    "study_lasso": "solution.papers.study.StudyLassoSettings",
}
