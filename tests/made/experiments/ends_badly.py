"""A ranker whose fit ends by a signal or an error, as the environment variable ENDING says."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from solution.domain.collection import TILE
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.base import RankerSettings
from solution.models.nothing import NothingRanker
from solution.system.errors import InputError
from solution.system.report import Report, silent


@dataclass(frozen=True)
class EndsBadlySettings(RankerSettings):
    """Settings of the ranker; there are none."""

    def build(self, seed: int) -> "EndsBadly":
        return EndsBadly()


class EndsBadly(NothingRanker):
    """Its fit fails, or takes an hour without ENDING; dry runs succeed."""

    is_job = False

    def keep_checkpoints(self, folder: Path) -> None:
        self.is_job = True

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> "EndsBadly":
        if not self.is_job:
            return self
        report(1, 2)
        if os.environ["ENDING"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ["ENDING"] == "error":
            raise InputError("the reason of the error")
        time.sleep(3600)
        return self


EXPERIMENT = Experiment(
    name="ends_badly", collections=TILE, ranker=EndsBadlySettings(), seeds=(0, 1)
)
