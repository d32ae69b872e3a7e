"""A student report's layout baseline with attention before it and the violation ratio after it.

    nodes, opcode, layouts ─▶ MLP ─▶ mask, attention ─▶ 3 SAGE blocks ─▶ mean, two sums ─┐
                   layouts ────────────────────────────▲ ▲ ▲                             │
    violation ratio of the configuration ────────────────────────────────────────────────┴▶ MLP ─▶

The net is the baseline of TpuGraphs (solution.papers.tpugraphs) with a block of multi-head
attention among all nodes as its initial layer (solution.papers.soft_attention). The violation ratio
is the share of configurable nodes whose largest output dimension is not the most minor one of their
layout (solution.features.layout.violations); it is always of the whole graph. In training, random
nodes are dropped to make attention affordable. With `importance`, the configurable nodes and the
important nodes (find_important), which the report proposes, are kept before all others. With
`draw="work"` (NodeSettings), nodes are drawn in proportion to their operations.

Source: a student report on the competition (rank 107 of 616): 1,000 nodes and 16 configurations,
500 nodes, 10,000 nodes and 32 configurations, or 5,000 nodes with 30 features chosen by hand; the
weights of the epoch with the most ordered pairs. Properties that had no effect according to the
report are settings: the position of the attention, its heads, the width, the convolution. The
report does not give the number of blocks of attention: here one.

With `compressed`, nodes have 30 of the 140 features (CHOSEN), so that a graph may keep more nodes.
The report selects "interpretable operation node features [...] most closely aligned with layout
tensor dimensions and operation runtime", and does not name them. The 30 features were chosen here,
by the names that TpuGraphs gives to features.

Important nodes are both ends of an edge at which a tensor's layout may change: the node that
computes the tensor, and the nodes whose layouts set the order of its dimensions. If these layouts
differ, the compiler has to copy the tensor (solution.features.layout.tensors). The report's
future work means the layouts of one configuration. A net sees several configurations at a time, so
here a node counts if it is such an end in any possible configuration.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from solution.domain import vocabulary
from solution.domain.graph import Graph, PerGraph
from solution.features.layout.tensors import find_constraints
from solution.features.layout.violations import UNSET, violation_ratios
from solution.features.preparation import PRUNINGS
from solution.models.nets.convolutions import both_ways
from solution.models.nets.layers import Mlp
from solution.models.nets.training_settings import TrainingSettings
from solution.models.settings import MAX_DEPTH, check_choice, check_size
from solution.papers import node_subsets
from solution.papers.soft_attention import NOT_ADJACENT, SoftAttention
from solution.papers.tpugraphs import JOINED_BLOCKS, JoinedNet, pool


def find_important(graph: Graph) -> np.ndarray:
    """Return a mask (nodes,) bool: True for both ends of a tensor that may have several layouts:
    the node that computes it, and the several configurable nodes that set its layout."""
    constraints = find_constraints(graph)
    is_side = np.zeros(graph.num_nodes, bool)
    is_side[constraints.nodes] = True
    is_side[graph.configurable[constraints.configurable]] = True
    return is_side


def _numbered(name: str, first: int, count: int) -> dict[str, int]:
    return {f"{name}_{number}": first + number for number in range(count)}


# Columns of the node features that `compressed` keeps, by the names of TpuGraphs.
CHOSEN = {
    # The size of each dimension, and the order of the dimensions in memory in the program.
    **_numbered("shape_dimensions", vocabulary.SHAPE_DIMENSIONS.start, 6),
    **_numbered("layout_minor_to_major", vocabulary.NODE_LAYOUT.start, 6),
    # The sum and the product of the sizes; whether the node is a result of the computation.
    "shape_dimensions_sum": vocabulary.SHAPE_SUM,
    "shape_dimensions_product": vocabulary.SHAPE_PRODUCT,
    "is_root": vocabulary.IS_ROOT,
    # The dimensions that are reduced, broadcast, transposed or concatenated.
    **_numbered("dimensions", vocabulary.DIMENSIONS.start, 3),
    # How often a convolution or pooling reads each element: its window.
    **_numbered("window_size", vocabulary.WINDOW_SIZE.start, 2),
    "window_size_product": 44,
    **_numbered("window_stride", 45, 2),
    # The dimensions that a convolution contracts, which should be contiguous.
    "convolution_dim_numbers_input_batch_dim": vocabulary.CONVOLUTION_INPUT_BATCH,
    "convolution_dim_numbers_input_feature_dim": vocabulary.CONVOLUTION_INPUT_FEATURE,
    "convolution_dim_numbers_kernel_input_feature_dim": vocabulary.CONVOLUTION_KERNEL_INPUT,
    "convolution_dim_numbers_kernel_output_feature_dim": vocabulary.CONVOLUTION_KERNEL_OUTPUT,
    "convolution_dim_numbers_output_batch_dim": vocabulary.CONVOLUTION_OUTPUT_BATCH,
    "convolution_dim_numbers_output_feature_dim": vocabulary.CONVOLUTION_OUTPUT_FEATURE,
    # The number of groups of a convolution.
    "feature_group_count": 107,
}
COLUMNS = np.sort(list(CHOSEN.values()))
# The chosen columns without the program's layout, which nets get as a separate input.
NUMERIC_COLUMNS = COLUMNS[vocabulary.NODE_LAYOUT.start > COLUMNS]


POSITIONS = ("first", "last", None)  # where attention stands: before or after the blocks, or none


@dataclass(frozen=True)
class ViolationSettings(node_subsets.NodeRankerSettings):
    """Settings of the net with attention and the violation ratio."""

    width: int = 64
    block: str = "sage"  # a name in solution.papers.tpugraphs.JOINED_BLOCKS
    rounds: int = 3
    # attention "first" (before the blocks) or "last" (after them); None: the baseline's net
    attention: str | None = "first"
    heads: int = 16
    head_width: int = 32
    mask: float | None = NOT_ADJACENT  # weight of nodes that are not adjacent; None: no mask
    compressed: bool = False  # use only 30 of the 140 node features (CHOSEN)
    ratio: bool = True  # whether the violation ratio is an input
    unset: str = "suits"  # how the ratio treats a node with an open layout: a name in UNSET
    importance: bool = False  # True: keep configurable and important nodes before all others
    nodes: node_subsets.NodeSettings = field(
        default_factory=lambda: node_subsets.NodeSettings(trained=1000)
    )
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            configs_per_graph=16, max_configs=None, chosen_by="opa"
        )
    )

    def __post_init__(self) -> None:
        check_choice("unset", self.unset, UNSET)
        check_choice("block", self.block, JOINED_BLOCKS)
        check_choice("attention", self.attention, POSITIONS)
        check_size("heads", self.heads, MAX_DEPTH)

    def build(self, seed: int) -> "ViolationRanker":
        return ViolationRanker(self, seed)


@dataclass(frozen=True)
class ViolationInputs(node_subsets.NodeInputs):
    """A layout graph, or some of its nodes, as tensors."""

    ratio: Tensor  # (distinct configs, 1) float32: violation ratio of each configuration
    preferred: np.ndarray  # (nodes,) bool: nodes that are kept before others

    def keep(self, nodes: Tensor) -> "ViolationInputs":
        preferred = self.preferred[nodes.cpu().numpy()]
        return dataclasses.replace(super().keep(nodes), preferred=preferred)


class ViolationRanker(node_subsets.NodeRanker[ViolationSettings, ViolationInputs]):
    """The net with attention and the violation ratio as a Ranker."""

    scaled_tables = ("numeric", "ratio")

    def prepare(self, graph: Graph) -> ViolationInputs:
        inputs, nodes = super().prepare(graph), self.settings.nodes
        values = {f.name: getattr(inputs, f.name) for f in dataclasses.fields(inputs)}
        if self.settings.compressed:
            values["numeric"] = inputs.numeric[:, NUMERIC_COLUMNS]
        if self.settings.importance:
            preferred = _finder(nodes.pruning, nodes.hops)(graph)
        else:
            preferred = np.zeros(len(inputs.opcodes), bool)
        ratio = _ratios(self.settings.unset)(graph)
        return ViolationInputs(**values, ratio=ratio, preferred=preferred)

    def make_net(self) -> "ViolationNet":
        return ViolationNet(self.settings)


@cache
def _ratios(unset: str) -> PerGraph[Tensor]:
    return PerGraph(lambda graph: torch.from_numpy(violation_ratios(graph, unset)[:, None]).float())


@cache
def _finder(pruning: str, hops: int) -> PerGraph[np.ndarray]:
    return PerGraph(lambda graph: find_preferred(PRUNINGS[pruning](graph, hops)))


def find_preferred(graph: Graph) -> np.ndarray:
    """Return a mask (nodes,) bool of configurable nodes and important nodes (find_important)."""
    preferred = find_important(graph)
    preferred[graph.configurable] = True
    return preferred


class ViolationNet(JoinedNet):
    """The net with attention and violation ratio, which scores configurations of layout graphs."""

    def __init__(self, settings: ViolationSettings) -> None:
        width = settings.width
        columns = len(COLUMNS) if settings.compressed else node_subsets.NUM_RAW
        super().__init__(settings.nodes, width, settings.rounds, settings.block, columns)
        self.position, self.ratio = settings.attention, settings.ratio
        if self.position is not None:
            sizes = (settings.heads, settings.head_width)
            self.width = max(width, 3 * settings.heads * settings.head_width)
            self.attention = SoftAttention(width, *sizes, settings.mask)
        self.readout = Mlp(3 * width + self.ratio, width, 1)

    def preferred(self, inputs: ViolationInputs) -> np.ndarray:
        return inputs.preferred

    def begin(self, inputs: node_subsets.NodeInputs, given: Tensor) -> Tensor:
        x = super().begin(inputs, given)
        return self.attention(x, inputs.edge_index) if self.position == "first" else x

    def score(self, inputs: ViolationInputs, configs: np.ndarray) -> Tensor:
        x = self.encode(inputs, configs, both_ways(inputs.edge_index))
        if self.position == "last":
            x = self.attention(x, inputs.edge_index)
        embedding = [pool(x, inputs.configurable)]
        if self.ratio:
            embedding.append(inputs.ratio[configs])
        return self.readout(torch.cat(embedding, dim=-1)).squeeze(-1)
