"""Define the settings of the training loop."""

import math
from dataclasses import dataclass, replace

from solution.models.nets.losses import LOSSES
from solution.models.nets.validation import METRICS
from solution.models.settings import check_choice

OPTIMIZERS = ("adamw", "adam")


@dataclass(frozen=True)
class TrainingSettings:
    """How a net is trained. An epoch visits every graph, large ones more than once."""

    loss: str = "pairwise_hinge"  # a name in models.nets.losses.LOSSES
    regression: float = 0.0  # weight of the squared runtime error added to the loss
    # "adamw" has warm-up, half a cosine and gradient clipping; "adam" is plain Adam.
    optimizer: str = "adamw"
    epochs: int = 60
    # Epochs without a better validation score before the fit stops. None: no early stopping, and
    # the validation graphs are learned from as well.
    patience: int | None = 15
    # the validation measure that chooses weights: the collection's score, "opa" or "tau"
    chosen_by: str = "score"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4  # of adamw
    graphs_per_step: int = 4
    configs_per_graph: int = 48  # drawn anew at each step
    # An epoch visits a graph as often as its configurations fill a step, up to this number.
    visits: int = 1
    # With few graphs, an epoch repeats all of them until it has the minimum of steps; with many, it
    # visits large ones less often, so as not to exceed the maximum.
    min_steps: int = 1
    max_steps: int | None = None
    max_configs: int | None = 1000  # distinct configurations of a graph to learn from; None: all
    validation_configs: int = 1000  # distinct configurations of a graph used for early stopping

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("chosen_by", self.chosen_by, METRICS)

    @property
    def trains_a_net(self) -> bool:
        """True: only nets have these settings."""
        return True

    def quick(self) -> "TrainingSettings":
        """Return the settings with a tenth of the epochs, and one visit to each graph in an
        epoch."""
        return replace(self, epochs=-(-self.epochs // 10), visits=1, min_steps=1)

    def shortened(self, share: float) -> "TrainingSettings":
        """Return the settings with epochs scaled by `share`, at least one."""
        return replace(self, epochs=math.ceil(self.epochs * share))
