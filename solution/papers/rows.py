"""Inputs of published layout nets: a row for every node of every configuration."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from solution.domain import vocabulary
from solution.domain.codebook import Codebook
from solution.domain.graph import Graph, PerGraph
from solution.features.nodes import compress
from solution.models.nets.devices import send

OPCODE_WIDTH = 16  # length of the vector that embeds an opcode
TOKEN_WIDTH = 4  # length of the vector that embeds one number of a layout


@dataclass(frozen=True)
class RowInputs:
    """A prepared layout graph as tensors, with the codebook of its layouts."""

    opcodes: Tensor  # (nodes,) int64: ids of solution.domain.vocabulary
    numeric: Tensor  # (nodes, 134) float32, all features except the layout
    tokens: Tensor  # (nodes, 6) int64: 1 + dimension in each slot of the program's layout; 0: empty
    pair_tokens: Tensor  # (pairs, 18) int64: layouts of the codebook, coded like `tokens`
    edge_index: Tensor  # (2, edges) int64, from operand to consumer
    configurable: Tensor  # (configurable,) int64: numbers of the configurable nodes
    codebook: Codebook
    # (configurable,) int64: column of `codebook.codes` that has each configurable node's layouts
    columns: np.ndarray

    def given(self, configs: np.ndarray) -> Tensor:
        """Return the layouts that the given configurations set: (configurable, len(configs), 18)
        int64, coded like `tokens`."""
        pairs = self.codebook.pairs(configs)[:, self.columns].T
        return self.pair_tokens[send(pairs, self.pair_tokens.device)].long()


def _prepare_rows(graph: Graph) -> RowInputs:
    features = graph.node_features
    others = compress(features[:, : vocabulary.NODE_LAYOUT.start]).astype(np.float32)
    layout = features[:, vocabulary.NODE_LAYOUT].astype(np.int64) + 1
    return RowInputs(
        opcodes=torch.from_numpy(graph.node_opcodes.astype(np.int64)),
        numeric=torch.from_numpy(others),
        tokens=torch.from_numpy(layout),
        pair_tokens=torch.from_numpy(graph.layouts.layouts.astype(np.int64) + 1),
        edge_index=torch.from_numpy(graph.edges.T[::-1].copy()),
        configurable=torch.from_numpy(graph.configurable.copy()),
        codebook=graph.layouts,
        columns=np.arange(len(graph.configurable)),
    )


prepare_rows = PerGraph(_prepare_rows)


class Rows(nn.Module):
    """The input rows of a net, one for each node and configuration: numeric features, and
    embeddings of the opcode and of the layouts (the program's and the configuration's, with one
    embedding table for both). Shape: (nodes, configs, width)."""

    width = (
        OPCODE_WIDTH
        + vocabulary.NODE_LAYOUT.start
        + TOKEN_WIDTH * (vocabulary.MAX_RANK + vocabulary.NUM_LAYOUT_FEATURES)
    )

    def __init__(self) -> None:
        super().__init__()
        self.opcode = nn.Embedding(vocabulary.NUM_OPCODES, OPCODE_WIDTH)
        self.token = nn.Embedding(vocabulary.NUM_LAYOUT_TOKENS, TOKEN_WIDTH)

    def forward(self, inputs: RowInputs, configs: np.ndarray) -> Tensor:
        tokens = self.token(inputs.tokens).flatten(1)
        nodes = torch.cat([self.opcode(inputs.opcodes), inputs.numeric, tokens], dim=-1)
        unset = self.token.weight[0].repeat(vocabulary.NUM_LAYOUT_FEATURES)
        layouts = unset.expand(len(nodes), len(configs), -1)
        given = self.token(inputs.given(configs)).flatten(2)
        layouts = layouts.index_put((inputs.configurable,), given)
        return torch.cat([nodes[:, None].expand(-1, len(configs), -1), layouts], dim=-1)
