"""A ranker that cuts the file in the environment variable CUT while it has it mapped."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.base import RankerSettings
from solution.models.nothing import NothingRanker
from solution.system.report import Report, silent


@dataclass(frozen=True)
class CutWhileReadSettings(RankerSettings):
    """Settings of the ranker; there are none."""

    def build(self, seed: int) -> "CutWhileRead":
        return CutWhileRead()


class CutWhileRead(NothingRanker):
    """Truncates a file of its data, as another program might."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> "CutWhileRead":
        path = Path(os.environ["CUT"])
        found = [graph.layouts.codes for graph in graphs if graph.name == path.stem]
        if found:
            os.truncate(path, 10_000)
            report(1, 1, str(found[0].sum()))
        return self


EXPERIMENT = Experiment(
    name="cut_while_read", collections=("layout:xla:random",), ranker=CutWhileReadSettings()
)
