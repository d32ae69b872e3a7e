"""Experiments of solution.papers.violation: TpuGraphs' baseline with attention and violation
ratio."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.node_subsets import NodeSettings
from solution.papers.violation import ViolationSettings

EXPERIMENTS = (
    Experiment(name="layout_violation_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, as a student report "
                     "submitted it.",
               ranker=ViolationSettings()),
    Experiment(name="layout_violation_10000_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, 10,000 nodes, 32 "
                     "configs: for a GPU.",
               ranker=ViolationSettings(nodes=NodeSettings(trained=10_000),
                                        training=TrainingSettings(configs_per_graph=32,
                                        max_configs=None, chosen_by="opa"))),
    Experiment(name="layout_violation_500_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, 500 random nodes, 16 "
                     "configurations.",
               ranker=ViolationSettings(nodes=NodeSettings(trained=500))),
    Experiment(name="layout_violation_baseline_001", collections=LAYOUT,
               about="The baseline of a student report: neither attention nor the violation ratio.",
               ranker=ViolationSettings(attention=None, ratio=False)),
    Experiment(name="layout_violation_compressed_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, 30 features of 5,000 "
                     "nodes: for a GPU.",
               ranker=ViolationSettings(compressed=True, nodes=NodeSettings(trained=5000))),
    Experiment(name="layout_violation_compressed_1000_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, 30 features of 1,000 "
                     "random nodes.",
               ranker=ViolationSettings(compressed=True)),
    Experiment(name="layout_violation_configs_32_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, 1,000 random nodes, 32 "
                     "configurations.",
               ranker=ViolationSettings(nodes=NodeSettings(trained=1000),
                                        training=TrainingSettings(configs_per_graph=32,
                                        max_configs=None, chosen_by="opa"))),
    Experiment(name="layout_violation_gcn_001", collections=LAYOUT,
               about="Graph convolutions with attention before them and the violation ratio.",
               ranker=ViolationSettings(block="gcn")),
    Experiment(name="layout_violation_graphs_16_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, 16 graphs a step.",
               ranker=ViolationSettings(training=TrainingSettings(graphs_per_step=16,
                                        configs_per_graph=16, max_configs=None, chosen_by="opa"))),
    Experiment(name="layout_violation_heads_4_001", collections=LAYOUT,
               about="The baseline with four heads of attention instead of 16, and the violation "
                     "ratio.",
               ranker=ViolationSettings(heads=4)),
    Experiment(name="layout_violation_importance_001", collections=LAYOUT,
               about="Configurable and important nodes kept before random ones; else as "
                     "layout_violation_001.",
               ranker=ViolationSettings(importance=True)),
    Experiment(name="layout_violation_last_001", collections=LAYOUT,
               about="The baseline with attention after its convolutions, and the violation ratio.",
               ranker=ViolationSettings(attention="last")),
    Experiment(name="layout_violation_pruned_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, on pruned graphs.",
               ranker=ViolationSettings(nodes=NodeSettings(pruning="neighbourhood", trained=1000))),
    Experiment(name="layout_violation_subsets_001", collections=LAYOUT,
               about="As layout_violation_001, predicting from eight subsets of 1,000 nodes: for "
                     "a CPU.",
               ranker=ViolationSettings(nodes=NodeSettings(trained=1000, scored=1000, subsets=8))),
    Experiment(name="layout_violation_unmasked_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, without the adjacency "
                     "mask.",
               ranker=ViolationSettings(mask=None)),
    Experiment(name="layout_violation_wide_001", collections=LAYOUT,
               about="The baseline with attention and the violation ratio, twice as wide.",
               ranker=ViolationSettings(width=128)),
    Experiment(name="layout_violation_without_attention_001", collections=LAYOUT,
               about="The baseline with the violation ratio, without attention.",
               ranker=ViolationSettings(attention=None)),
    Experiment(name="layout_violation_without_ratio_001", collections=LAYOUT,
               about="The baseline with attention before its convolutions, without the violation "
                     "ratio.",
               ranker=ViolationSettings(ratio=False)),
    Experiment(name="layout_violation_work_001", collections=LAYOUT,
               about="Nodes drawn by the operations they compute; else as layout_violation_001.",
               ranker=ViolationSettings(nodes=NodeSettings(trained=1000, draw="work"))),
)  # fmt: skip
