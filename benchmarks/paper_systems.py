"""The published systems that are compared, and ours.

A system is an experiment of the package. `smaller` has the settings that are changed because the
programs here are small: 45 to 398 nodes in the xla collections and 257 to 1,340 in the nlp ones,
while those of the competition have up to 43,615. A thousand random nodes would be nearly all.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import find_experiment
from solution.models.base import RankerSettings
from solution.papers.node_subsets import NodeSettings
from solution.papers.published_numbers import tell_numbers

FEW = NodeSettings(trained=40)  # nodes per training step; predictions use all nodes


@dataclass(frozen=True)
class System:
    """A row of the table."""

    experiment: str
    reported: tuple[str, ...] = ()  # its document's numbers: names in published.toml
    smaller: dict[str, Any] = field(default_factory=dict)

    @property
    def published(self) -> str:
        """Return its document's numbers, on the competition's data."""
        return tell_numbers(*self.reported)

    def settings(self) -> RankerSettings:
        """Return the settings to fit."""
        return _replace(find_experiment(self.experiment).ranker, self.smaller)


def _replace(settings: Any, values: Mapping[str, Any]) -> Any:
    """Return the settings, or those of the wrapped ranker, with these values."""
    if set(values) <= {field.name for field in dataclasses.fields(settings)}:
        return dataclasses.replace(settings, **values)
    return dataclasses.replace(settings, ranker=_replace(settings.ranker, values))


LAYOUT_SYSTEMS = {
    "TpuGraphs, segment": System("layout_tpugraphs_001", ("tgraph_baseline",), {"segment": 60}),
    "TpuGraphs, squared error": System("layout_tpugraphs_mse_001", smaller={"segment": 60}),
    "TpuGraphs, pruned": System("layout_tpugraphs_pruned_001"),
    "TpuGraphs, random nodes": System("layout_tpugraphs_random_001", smaller={"nodes": FEW}),
    "residual": System(
        "layout_residual_001",
        smaller={"nodes": FEW},
    ),
    "residual, attention": System(
        "layout_residual_attention_001",
        ("residual_rank", "residual_score"),
        {"nodes": FEW},
    ),
    "segment training": System(
        "layout_segments_001",
        ("blog_segments",),
        {"hops": None, "max_nodes": 60, "head_epochs": 1},
    ),
    "segment training, whole graphs": System(
        "layout_segments_full_001", smaller={"hops": None, "head_epochs": 1}
    ),
    "violation ratio": System(
        "layout_violation_001",
        ("violation_rank", "violation_opa", "violation_without_ratio_opa"),
        {"nodes": FEW},
    ),
    "violation ratio left out": System(
        "layout_violation_without_ratio_001", smaller={"nodes": FEW}
    ),
    "violation ratio, nodes of importance": System(
        "layout_violation_importance_001", smaller={"nodes": FEW}
    ),
    "TGraph": System("layout_tgraph_001", ("tgraph_mean", "tgraph_single")),
    "study, least squares": System("layout_study_linear_001", ("study_layout_least_squares",)),
    "study, lasso": System("layout_study_lasso_001", ("study_layout_lasso",)),
    "study, ridge": System("layout_study_ridge_001", ("study_layout_ridge",)),
    "study, LightGBM": System("layout_study_lightgbm_001", ("study_layout_lightgbm",)),
    "study, LightGBM, opcodes": System("layout_study_lightgbm_opcodes_001"),
    "our trees": System("layout_lightgbm_001"),
    "our net": System("layout_gnn_001"),
}
TILE_SYSTEMS = {
    "TpuGraphs, MLP": System("tile_tpugraphs_mlp_001"),
    "TpuGraphs, GCN late": System("tile_tpugraphs_gcn_late_001"),
    "TpuGraphs, GCN early": System("tile_tpugraphs_gcn_early_001"),
    "TpuGraphs, GraphSAGE late": System("tile_tpugraphs_sage_late_001"),
    "TpuGraphs, GraphSAGE early": System("tile_tpugraphs_sage_early_001"),
    "TpuGraphs, GraphSAGE late, squared error": System("tile_tpugraphs_sage_late_mse_001"),
    "study, least squares": System("tile_study_linear_001", ("study_tile_least_squares",)),
    "study, lasso": System("tile_study_lasso_001", ("study_tile_lasso",)),
    "study, ridge": System("tile_study_ridge_001", ("study_tile_ridge",)),
    "study, LightGBM": System("tile_study_lightgbm_001", ("study_tile_lightgbm",)),
    "study, LightGBM, opcodes": System(
        "tile_study_lightgbm_opcodes_001", ("study_tile_lightgbm_opcodes",)
    ),
    "our trees": System("tile_lightgbm_001"),
    "our net": System("tile_gnn_001"),
}
# The documents' claims about two systems: the first is at least as good as the second.
ORDERS = (
    (LAYOUT, "residual, attention", "residual"),
    (LAYOUT, "violation ratio", "violation ratio left out"),
    (LAYOUT, "TpuGraphs, pruned", "TpuGraphs, random nodes"),
    (LAYOUT, "TGraph", "TpuGraphs, segment"),
    (LAYOUT, "our net", "TGraph"),
    (TILE, "study, LightGBM", "study, least squares"),
    (TILE, "study, LightGBM", "TpuGraphs, GraphSAGE late"),  # the study's main result
    (TILE, "study, LightGBM, opcodes", "study, LightGBM"),
    (LAYOUT, "TpuGraphs, segment", "study, LightGBM"),
    (LAYOUT, "study, LightGBM, opcodes", "study, LightGBM"),
    (TILE, "TpuGraphs, GraphSAGE late", "TpuGraphs, MLP"),
    (TILE, "our net", "TpuGraphs, GraphSAGE late"),
)
