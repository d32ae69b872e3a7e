"""A ranker that writes a file for each fit into the folder in COUNTED_FITS, in any process."""

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from solution.domain.collection import NLP, XLA
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.linear import LinearRanker, RidgeSettings
from solution.system.report import Report, silent


@dataclass(frozen=True)
class CountedSettings(RidgeSettings):
    """Settings of a ridge that is counted."""

    max_configs: int = 10

    def build(self, seed: int) -> "CountedRidge":
        return CountedRidge(self, seed)


class CountedRidge(LinearRanker):
    """Ridge that writes a file for each fit except in dry runs."""

    is_job = False

    def keep_checkpoints(self, folder: Path) -> None:
        self.is_job = True

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        if not self.is_job:
            return super().fit(graphs, validation, report)
        descriptor, _ = tempfile.mkstemp(dir=os.environ["COUNTED_FITS"])
        os.close(descriptor)
        time.sleep(0.2)  # so that other workers are at work meanwhile
        return super().fit(graphs, validation, report)


EXPERIMENT = Experiment(
    name="counted_fits",
    collections=(*XLA, *NLP),
    ranker=CountedSettings(),
    train_jointly=(XLA, NLP),
)
