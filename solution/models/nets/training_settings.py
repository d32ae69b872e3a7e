"""How a net is trained: what can be set of the loop."""

import math
from dataclasses import dataclass, replace

from solution.models.nets.losses import LOSSES
from solution.models.nets.validation import METRICS
from solution.models.settings import check_choice

OPTIMIZERS = ("adamw", "adam")


@dataclass(frozen=True)
class TrainingSettings:
    """How a net is trained; one epoch visits every graph, large ones more than once."""

    loss: str = "pairwise_hinge"  # a name in models.nets.losses.LOSSES
    regression: float = 0.0  # how much the squared error of runtimes counts beside the loss
    # "adamw" warms up, falls by half a cosine and clips gradients; "adam" is Adam and no more.
    optimizer: str = "adamw"
    epochs: int = 60
    # Epochs without a better validation score before it stops. None: it never stops early and
    # learns from the validation graphs as well.
    patience: int | None = 15
    chosen_by: str = "score"  # of a validation: the collection's own score, "opa" or "tau"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4  # of adamw
    graphs_per_step: int = 4
    configs_per_graph: int = 48  # sampled anew at each step
    # An epoch visits a graph as often as its configurations fill a step, at most so many times.
    visits: int = 1
    # Where there are few graphs, an epoch visits all of them again, until it has so many steps;
    # where there are many, it visits large ones less often, so that it has no more than so many.
    min_steps: int = 1
    max_steps: int | None = None
    max_configs: int | None = 1000  # distinct configurations of a graph to learn from; None: all
    validation_configs: int = 1000  # distinct configurations of a graph to stop early on

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("chosen_by", self.chosen_by, METRICS)

    @property
    def trains_a_net(self) -> bool:
        """These settings are of nets alone."""
        return True

    def quick(self) -> "TrainingSettings":
        """A tenth of the epochs, each of one visit to a graph."""
        return replace(self, epochs=-(-self.epochs // 10), visits=1, min_steps=1)

    def shortened(self, share: float) -> "TrainingSettings":
        """So much of the epochs, one at least."""
        return replace(self, epochs=math.ceil(self.epochs * share))
