"""The documents' claims, as pairs of experiments, and the sizes that are reduced here.

Nets with attention among all nodes (`layout_violation_*`) need time quadratic in a graph's nodes to
predict. For the nlp programs, only 16 configurations of each are scored, the same ones for both of
a pair. They train 10 epochs without validation, except for claims about their learning curve. The
report says that the attention's position and heads, the width, the graphs per step and the
convolution have no effect; these are compared on the smaller programs only.
"""

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.paper_systems import FEW, LAYOUT_SYSTEMS, TILE_SYSTEMS, System
from benchmarks.parts import Fit, with_training
from benchmarks.timed_fits import unwrap
from solution.domain.collection import LAYOUT, TILE
from solution.domain.dividing import MAX_CONFIGS
from solution.models.base import RankerSettings
from solution.papers.node_subsets import NodeSettings
from solution.training.folds import Scheme

DEFAULT = ("layout:xla:default",)
SMALL = LAYOUT[:2]  # programs of the xla collections have a fourth of the others' nodes
ATTENTIVE = "layout_violation_"
FEW_NODES = 40  # nodes per step, where the documents use 1,000
FEW_CONFIGS = 16  # of each nlp program, predicted by nets with attention among all nodes
EPOCHS = 10  # of those nets without validation: the report compares them after so many
CURVES = {"epochs": 12, "patience": 12}  # of those nets with validation
VALIDATED = 40  # configurations per graph, out of about 90


@dataclass(frozen=True)
class Claim:
    """The claim that the first experiment is better than the second, by the measure."""

    text: str
    better: str
    worse: str
    collections: tuple[str, ...]
    measure: str = "score"
    reported: tuple[str, ...] = ()  # names in published.toml, for the first, then the second


CLAIMS = (
    # 000: residual graph net with attention. A collection has only 50 graphs here, so a step of 100
    # graphs would be the same.
    Claim("attention in front of the convolutions, 10 graphs a step",
          "layout_residual_attention_001", "layout_residual_001", LAYOUT, "OPA",
          ("residual_attention_opa_10", "residual_opa_10")),
    Claim("attention in front of the convolutions, all graphs a step",
          "layout_residual_attention_batch_50_001", "layout_residual_batch_50_001", LAYOUT, "OPA",
          ("residual_attention_opa_50", "residual_opa_50")),
    Claim("all graphs a step, not 10", "layout_residual_attention_batch_50_001",
          "layout_residual_attention_001", LAYOUT, "OPA",
          ("residual_attention_opa_50", "residual_attention_opa_10")),
    Claim("one epoch, not six", "layout_residual_attention_epoch_001",
          "layout_residual_attention_patience_2_001", LAYOUT, "score",
          ("residual_score", "residual_score_6")),
    Claim("one epoch, not six, all graphs a step", "layout_residual_attention_batch_50_epoch_001",
          "layout_residual_attention_batch_50_patience_2_001", LAYOUT),
    Claim("10 graphs a step, not all, six epochs", "layout_residual_attention_patience_2_001",
          "layout_residual_attention_batch_50_patience_2_001", LAYOUT, "score",
          ("residual_score_6", "residual_score_50_6")),
    Claim("attention makes the validation score steadier", "layout_residual_attention_001",
          "layout_residual_001", LAYOUT, "volatility"),
    Claim("attention makes the training loss steadier", "layout_residual_attention_001",
          "layout_residual_001", LAYOUT, "loss_volatility"),
    Claim("attention in front of the convolutions, tiles", "tile_residual_attention_001",
          "tile_residual_001", TILE, "OPA"),
    # 001: the blog.
    Claim("segments instead of whole graphs", "layout_segments_001", "layout_segments_full_001",
          LAYOUT),
    Claim("segments take less memory", "layout_segments_001", "layout_segments_full_001", LAYOUT,
          "megabytes"),
    Claim("segments take less time to the same validation score", "layout_segments_001",
          "layout_segments_full_001", LAYOUT, "reach", ("blog_segments",)),
    Claim("a table of the other segments takes less time an epoch", "layout_segments_table_001",
          "layout_segments_anew_001", LAYOUT, "epoch"),
    Claim("a table, not the other segments anew", "layout_segments_table_001",
          "layout_segments_anew_001", LAYOUT),
    Claim("dropout of what the table has", "layout_segments_001", "layout_segments_table_001",
          LAYOUT),
    Claim("the gradient through one segment, not the graph, baseline", "layout_tpugraphs_001",
          "layout_tpugraphs_full_001", LAYOUT),
    Claim("GraphSAGE, not graph convolutions, baseline", "layout_tpugraphs_001",
          "layout_tpugraphs_gcn_001", LAYOUT),
    Claim("only configurable nodes and their neighbours", "layout_tpugraphs_pruned_001",
          "layout_tpugraphs_001", LAYOUT),
    Claim("virtual nodes for the rest, baseline", "layout_tpugraphs_virtual_001",
          "layout_tpugraphs_pruned_001", LAYOUT),
    Claim("virtual nodes for the rest, our net", "layout_gnn_virtual_001", "layout_gnn_001",
          LAYOUT),
    Claim("padding -1 instead of 0, baseline", "layout_tpugraphs_001",
          "layout_tpugraphs_padding_0_001", LAYOUT),
    Claim("padding -1 instead of 0, our net", "layout_gnn_001", "layout_gnn_padding_0_001", LAYOUT),
    Claim("padding -1 instead of 0, tile baseline", "tile_tpugraphs_sage_early_001",
          "tile_tpugraphs_padding_0_001", TILE),
    Claim("padding -1 instead of 0, our tile net", "tile_gnn_001", "tile_gnn_padding_0_001", TILE),
    Claim("what dots sum over, baseline", "layout_tpugraphs_contractions_001",
          "layout_tpugraphs_001", LAYOUT),
    Claim("what dots sum over, our net", "layout_gnn_contractions_001", "layout_gnn_001", LAYOUT),
    Claim("what dots sum over, trees", "layout_pointwise_contractions_001", "layout_pointwise_001",
          LAYOUT),
    Claim("what dots sum over, tile baseline", "tile_tpugraphs_contractions_001",
          "tile_tpugraphs_sage_early_001", TILE),
    Claim("what dots sum over, our tile net", "tile_gnn_contractions_001", "tile_gnn_001", TILE),
    Claim("logarithms of node features, baseline", "layout_tpugraphs_001",
          "layout_tpugraphs_plain_001", LAYOUT),
    Claim("logarithms of node features, our net", "layout_gnn_001", "layout_gnn_plain_001", LAYOUT),
    Claim("logarithms of node features, tile baseline", "tile_tpugraphs_sage_early_001",
          "tile_tpugraphs_plain_001", TILE),
    Claim("logarithms of node features, our tile net", "tile_gnn_001", "tile_gnn_plain_001", TILE),
    Claim("configurations that are compared, our tile net", "tile_gnn_rivals_001", "tile_gnn_001",
          TILE),
    Claim("configurations that are compared, TGraph", "layout_tgraph_001",
          "layout_tgraph_alone_001", LAYOUT),
    # 002: violation ratio and attention.
    Claim("attention in front of the baseline", "layout_violation_without_ratio_001",
          "layout_violation_baseline_001", LAYOUT, "OPA",
          ("violation_attention_opa", "violation_without_attention_opa")),
    *(Claim("attention in front of the baseline", "layout_violation_without_ratio_001",
            "layout_violation_baseline_001", (place,), "OPA") for place in LAYOUT),
    Claim("attention in front of the baseline, tiles", "tile_tpugraphs_attention_001",
          "tile_tpugraphs_sage_early_001", TILE, "OPA"),
    Claim("the violation ratio", "layout_violation_001", "layout_violation_without_ratio_001",
          LAYOUT, "OPA", ("violation_ratio_opa", "violation_without_ratio_opa")),
    Claim("all features of few nodes, not few of many", "layout_violation_001",
          "layout_violation_compressed_001", ("layout:xla:random",), "OPA",
          ("violation_all_features_opa", "violation_compressed_opa")),
    Claim("many nodes make the score steadier", "layout_violation_10000_001",
          "layout_violation_500_001", SMALL, "volatility"),
    Claim("few nodes take less time an epoch", "layout_violation_500_001",
          "layout_violation_10000_001", SMALL, "epoch", ("violation_slower",)),
    Claim("many nodes, not few", "layout_violation_10000_001", "layout_violation_500_001", SMALL,
          "OPA"),
    Claim("16 heads, not 4 (no effect)", "layout_violation_001", "layout_violation_heads_4_001",
          SMALL, "OPA"),
    Claim("attention as the first layer, not the last (no effect)", "layout_violation_001",
          "layout_violation_last_001", SMALL, "OPA"),
    Claim("twice as wide (no effect)", "layout_violation_wide_001", "layout_violation_001", SMALL,
          "OPA"),
    Claim("16 graphs a step, not 4 (no effect)", "layout_violation_graphs_16_001",
          "layout_violation_001", SMALL, "OPA"),
    Claim("GraphSAGE, not graph convolutions (no effect)", "layout_violation_001",
          "layout_violation_gcn_001", SMALL, "OPA"),
    Claim("only configurable nodes and their neighbours, attention", "layout_violation_pruned_001",
          "layout_violation_001", LAYOUT),
    Claim("configurable nodes and those of importance first", "layout_violation_importance_001",
          "layout_violation_001", LAYOUT),
    Claim("nodes drawn by their work", "layout_violation_work_001", "layout_violation_001", LAYOUT),
    # 004: the LightGBM study.
    Claim("the study's LightGBM before the GNN baseline", "tile_study_lightgbm_001",
          "tile_tpugraphs_sage_late_001", TILE, "slowdown",
          ("study_tile_lightgbm", "study_tile_gnn")),
    Claim("its LightGBM before least squares", "tile_study_lightgbm_001", "tile_study_linear_001",
          TILE, "slowdown", ("study_tile_lightgbm", "study_tile_least_squares")),
    Claim("its LightGBM before lasso", "tile_study_lightgbm_001", "tile_study_lasso_001", TILE,
          "slowdown", ("study_tile_lightgbm", "study_tile_lasso")),
    Claim("its LightGBM before ridge", "tile_study_lightgbm_001", "tile_study_ridge_001", TILE,
          "slowdown", ("study_tile_lightgbm", "study_tile_ridge")),
    Claim("least squares before ridge", "tile_study_linear_001", "tile_study_ridge_001", TILE,
          "slowdown", ("study_tile_least_squares", "study_tile_ridge")),
    Claim("opcodes for tiles", "tile_study_lightgbm_opcodes_001", "tile_study_lightgbm_001", TILE,
          "slowdown", ("study_tile_lightgbm_opcodes", "study_tile_lightgbm")),
    Claim("the GNN baseline before LightGBM on layouts", "layout_tpugraphs_001",
          "layout_study_lightgbm_001", DEFAULT, "score",
          ("study_layout_gnn", "study_layout_lightgbm")),
    Claim("the GNN baseline before least squares on layouts", "layout_tpugraphs_001",
          "layout_study_linear_001", DEFAULT, "score",
          ("study_layout_gnn", "study_layout_least_squares")),
    Claim("opcodes for layouts", "layout_study_lightgbm_opcodes_001", "layout_study_lightgbm_001",
          DEFAULT),
    Claim("opcodes of what pruning drops", "layout_study_lightgbm_all_opcodes_001",
          "layout_study_lightgbm_opcodes_001", LAYOUT),
)  # fmt: skip

SEGMENTS = {"hops": None, "max_nodes": 60, "head_epochs": 1}
# As in the table of the published systems, and claims that are only tested here.
SMALLER: dict[str, dict[str, Any]] = {
    **{system.experiment: system.smaller
       for system in (*LAYOUT_SYSTEMS.values(), *TILE_SYSTEMS.values())},
    **{f"layout_tpugraphs_{switch}_001": {"segment": 60}
       for switch in ("padding_0", "contractions", "plain", "gcn")},
    **{f"layout_residual{attention}_{switch}_001": {"nodes": FEW}
       for attention in ("", "_attention")
       for switch in ("batch_50", "epoch", "patience_2", "batch_50_epoch", "batch_50_patience_2")},
    **{f"layout_segments_{way}_001": SEGMENTS for way in ("anew", "table")},
    **{f"{ATTENTIVE}{switch}_001": {"nodes": FEW}
       for switch in ("baseline", "heads_4", "last", "wide", "graphs_16", "gcn")},
    f"{ATTENTIVE}pruned_001": {"nodes": NodeSettings("neighbourhood", trained=FEW_NODES)},
    f"{ATTENTIVE}work_001": {"nodes": replace(FEW, draw="work")},
    f"{ATTENTIVE}500_001": {"nodes": replace(FEW, trained=FEW_NODES // 2)},
    f"{ATTENTIVE}compressed_001": {"nodes": replace(FEW, trained=5 * FEW_NODES)},
    f"{ATTENTIVE}10000_001": {"nodes": replace(FEW, trained=5 * FEW_NODES)},
    **{f"tile_study_lightgbm{opcodes}_001": {"max_rows": 8000} for opcodes in ("", "_opcodes")},
}  # fmt: skip
OWN_EPOCHS = tuple(f"layout_residual_attention_{batch}{name}_001"
                   for batch in ("", "batch_50_") for name in ("epoch", "patience_2"))  # fmt: skip
OF_CURVES = tuple(f"{ATTENTIVE}{nodes}_001" for nodes in (500, 10000))
ALONE = ("layout_segments_001", "layout_segments_full_001")  # experiments whose memory is compared


def fit_of(
    name: str,
    system: System,
    place: str,
    fold: int,
    seed: int,
    seconds: float,
    way: str,
    scheme: Scheme = "architecture",
) -> Fit:
    """Return a fit of a published system."""
    configs = configs_of(system.experiment, place)
    settings = system.settings()
    return Fit(name, settings, place, fold, seed, seconds, way, configs, scheme=scheme)


def settings_of(name: str) -> RankerSettings:
    """Return the settings of an experiment, with the sizes reduced here."""
    settings = System(name, smaller=SMALLER.get(name, {})).settings()
    if not hasattr(unwrap(settings), "training"):
        return settings
    if name.startswith(ATTENTIVE) and name not in OF_CURVES:
        return with_training(settings, epochs=EPOCHS, patience=None)
    curves = CURVES if name in OF_CURVES else {}
    return with_training(settings, validation_configs=VALIDATED, **curves)


def seconds_of(name: str, place: str, seconds: float) -> float:
    """Return the maximum seconds of a fit; 0: its own epochs. Tile nets get more for many
    kernels."""
    own = name in OWN_EPOCHS or name in OF_CURVES
    return 0.0 if own else seconds * (4 if place in TILE else 1)


def configs_of(name: str, place: str) -> int:
    """Return the maximum number of configurations predicted per program."""
    return FEW_CONFIGS if name.startswith(ATTENTIVE) and ":nlp:" in place else MAX_CONFIGS
