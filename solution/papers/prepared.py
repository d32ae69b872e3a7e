"""Wrap a ranker to prepare its graphs in another way, for ablations.

Participants of the competition found that unused slots of a list of dimensions should not hold 0,
which is a valid dimension; that the dimensions a dot contracts are useful features; and that the
encoding of node features matters. Each is a switch of PreparedSettings.

ContractionRanker trains boosted trees on the layout table and on columns that say which contracted
dimensions are contiguous.

Source: Google Research's report on TpuGraphs and on the competition, 2023.
"""

from dataclasses import dataclass, replace

import numpy as np

from solution.domain.graph import Graph
from solution.domain.vocabulary import PADDING
from solution.features import contractions
from solution.features.column import Feature
from solution.features.nodes import ENCODINGS
from solution.features.preparation import Preparation
from solution.features.table import distinct_rows
from solution.models.base import Ranker, check_no_options
from solution.models.settings import check_choice, check_size
from solution.models.trees.lightgbm_ranker import PointwiseRanker, PointwiseSettings
from solution.papers.wrappers import WrapperSettings
from solution.system.errors import InputError


@dataclass(frozen=True)
class PreparedSettings(WrapperSettings):
    """Settings of a ranker and of the preparation of its graphs; `build` builds the ranker."""

    padding: int = PADDING  # value of unused slots: -1, or 0 as in the files
    contractions: bool = False  # whether the contracted dimensions of dots are features
    encoding: str = ENCODINGS[0]  # encoding of node features, for nets: a name in ENCODINGS

    def __post_init__(self) -> None:
        check_size("padding", self.padding, most=0, least=PADDING)
        check_choice("encoding", self.encoding, ENCODINGS)

    @property
    def preparation(self) -> Preparation:
        inner = self.ranker.preparation
        return replace(inner, padding=self.padding, contractions=self.contractions)

    def build(self, seed: int) -> Ranker:
        """Return an unfitted ranker; raise InputError if it cannot use the encoding."""
        ranker = self.ranker.build(seed)
        if self.encoding != ENCODINGS[0]:
            if not hasattr(ranker, "encoding"):
                raise InputError(
                    f"encoding is {self.encoding!r}, but {type(ranker).__name__} is no net and "
                    f"has no other than {ENCODINGS[0]!r}. Change the settings of the experiment."
                )
            ranker.encoding = self.encoding
        return ranker


@dataclass(frozen=True)
class ContractionSettings(PointwiseSettings):
    """Settings of ContractionRanker."""

    def build(self, seed: int) -> "ContractionRanker":
        return ContractionRanker(self, seed)


class ContractionRanker(PointwiseRanker):
    """Boosted trees that predict a layout's normalised rank, from the layout table and columns that
    say which contracted dimensions are contiguous. A score depends on the configurations scored
    together, as in BoostedTrees."""

    def rows_of(self, graph: Graph) -> np.ndarray:
        check_no_options(graph)
        return np.concatenate([distinct_rows(graph), contractions.contraction_rows(graph)], axis=1)

    def features_of(self, graph: Graph) -> tuple[Feature, ...]:
        return (*super().features_of(graph), *contractions.FEATURES)
