"""Define the settings of the training loop."""

import math
from dataclasses import dataclass, replace

from solution.models.nets.losses import LOSSES
from solution.models.nets.validation import METRICS
from solution.models.settings import check_choice

OPTIMIZERS = ("adamw", "adam")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training loop. An epoch visits every graph, large ones several times."""

    loss: str = "pairwise_hinge"  # a name in models.nets.losses.LOSSES
    regression: float = 0.0  # factor of runtime_squared_error, which is added to the loss; 0: none
    # "adamw": warm-up, half a cosine, gradient clipping; "adam": constant rate, no clipping
    optimizer: str = "adamw"
    epochs: int = 60
    # epochs without a better validation score until the fit stops; None: no early stopping, and
    # validation graphs are learned from as well
    patience: int | None = 15
    # the validation measure that chooses weights: the collection's score, "opa" or "tau"
    chosen_by: str = "score"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4  # used by "adamw" only
    graphs_per_step: int = 4
    # number of configurations of each graph compared in a step; drawn anew in each step
    configs_per_graph: int = 48
    # maximum number of visits of a graph in an epoch; a graph with fewer configurations than visits
    # * configs_per_graph is visited less often
    visits: int = 1
    # minimum and maximum number of steps of an epoch: for the minimum, visits are repeated; for the
    # maximum, large graphs are visited less often
    min_steps: int = 1
    max_steps: int | None = None
    # at most this many distinct configurations of a graph are learned from; None: all
    max_configs: int | None = 1000
    # at most this many distinct configurations of a validation graph are scored for early stopping
    validation_configs: int = 1000

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("chosen_by", self.chosen_by, METRICS)

    @property
    def trains_a_net(self) -> bool:
        """True: only nets have these settings."""
        return True

    def quick(self) -> "TrainingSettings":
        """Return settings for a trial run: a tenth of the epochs, one visit of each graph."""
        return replace(self, epochs=-(-self.epochs // 10), visits=1, min_steps=1)

    def shortened(self, share: float) -> "TrainingSettings":
        """Return a copy with the number of epochs multiplied by `share` and rounded up."""
        return replace(self, epochs=math.ceil(self.epochs * share))
