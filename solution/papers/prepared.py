"""Another ranker, on graphs that are prepared otherwise: what a preparation is worth.

Participants of the competition found that unused slots of a list of dimensions should not hold 0,
which is a dimension; that it helps to know what a dot sums over; and that it matters how the
numbers of nodes are encoded. Each is a switch here, so each can be left out and measured.

Source: Google Research's report on TpuGraphs and on the competition, 2023.
"""

from dataclasses import dataclass, replace

from solution.features.nodes import ENCODINGS
from solution.features.padding import PADDING
from solution.features.preparation import Preparation
from solution.models.base import Ranker
from solution.models.settings import check_choice, check_size
from solution.papers.wrappers import WrapperSettings
from solution.system.errors import InputError


@dataclass(frozen=True)
class PreparedSettings(WrapperSettings):
    """A ranker, and how its graphs are prepared. It is the ranker that is built and saved."""

    padding: int = PADDING  # what unused slots hold: -1, or 0 as in the files
    contractions: bool = False  # whether dots say which dimensions they sum
    encoding: str = ENCODINGS[0]  # of the numbers of nodes, for nets: logarithms, or as they are

    def __post_init__(self) -> None:
        check_size("padding", self.padding, most=0, least=PADDING)
        check_choice("encoding", self.encoding, ENCODINGS)

    @property
    def preparation(self) -> Preparation:
        inner = self.ranker.preparation
        return replace(inner, padding=self.padding, contractions=self.contractions)

    def build(self, seed: int) -> Ranker:
        """Make the ranker; InputError where an encoding is asked of one that is no net."""
        ranker = self.ranker.build(seed)
        if self.encoding != ENCODINGS[0]:
            if not hasattr(ranker, "encoding"):
                raise InputError(
                    f"encoding is {self.encoding!r}, but {type(ranker).__name__} is no net and "
                    f"has no other than {ENCODINGS[0]!r}. Change the settings of the experiment."
                )
            ranker.encoding = self.encoding
        return ranker
