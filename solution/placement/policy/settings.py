"""Settings of the policy and of its training."""

from dataclasses import dataclass

from solution.models.settings import MAX_DEPTH, MAX_WIDTH, check_choice, check_size
from solution.placement.evaluation import PENALTY, TASKS
from solution.placement.simulation.decision import FUSION_LEVELS, PRIORITY_LEVELS
from solution.system.errors import InputError

MAX_HEAD = 8  # devices that the placement head has; of fewer, the rest is masked
GOING_ON = 5e-5  # learning rate of PPO that goes on from a trained policy; from scratch: 1e-4
CHOICES = {
    "topology": ("sage", "none"),
    "attention": ("segments", "lstm", "none"),
    "modulation": ("graph", "node", "none"),
}
# The least and the most: a policy of any size can be asked for in a few letters of a file.
SIZES = {
    "width": (1, MAX_WIDTH),
    "embedding_layers": (0, MAX_DEPTH),
    "attention_layers": (0, MAX_DEPTH),
    "heads": (1, MAX_DEPTH),
    "segment": (1, MAX_WIDTH),
    "inner": (1, MAX_WIDTH),
    "rounds": (1, MAX_DEPTH),
    "agreement": (0, MAX_DEPTH),
}


@dataclass(frozen=True)
class PolicySettings:
    """The network. The shipped policy is narrower, and has one round.

    The defaults are the specification's, but that there is no dropout and no value net, and that
    neighbours agree, which is ours.

    Attributes:
        tasks: in the order in which they are decided.
        topology: "sage", or "none" for a layer on each node alone.
        attention: "segments", "lstm" for a recurrent net along the nodes, "none" for a layer on
            each node alone.
        memory: whether a segment sees the one before it.
        modulation: "graph", "node" or "none".
        rounds: how often the actions' probabilities are fed back; 1: never.
        agreement: sweeps in which neighbours agree on devices; 0: each node for itself.
    """

    tasks: tuple[str, ...] = TASKS
    width: int = 128
    embedding_layers: int = 2
    attention_layers: int = 3
    heads: int = 8
    segment: int = 256
    inner: int = 512
    rounds: int = 3
    topology: str = "sage"
    attention: str = "segments"
    memory: bool = True
    modulation: str = "graph"
    agreement: int = 8

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name, (least, most) in SIZES.items():
            check_size(name, getattr(self, name), most, least)
        for task in self.tasks:
            check_choice("tasks", task, TASKS)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise InputError(f"tasks are {self.tasks}, expected one or more, each once.")
        if self.attention == "segments" and self.width % self.heads:
            raise InputError(f"width is {self.width}, expected a multiple of {self.heads} heads.")

    def actions(self, task: str) -> int:
        """How many a node has."""
        return {"placement": MAX_HEAD, "schedule": PRIORITY_LEVELS, "fusion": FUSION_LEVELS}[task]


@dataclass(frozen=True)
class TrainingSettings:
    """PPO.

    Attributes:
        updates: at most so many.
        graphs: in each update so many, one after the other: each has `samples` decisions and
            `epochs` steps of its own before the next one's are drawn.
        ratio: what is clipped, of each task of a decision: "mean", the geometric mean over its
            nodes; "graph", the product over them; "node", each node's.
        clip: 0 turns clipping off, which is REINFORCE with one epoch.
        repair: mend decisions that overfill a device; else they have the penalty as reward.
        entropy: weight of its bonus, over the root of the nodes, falling to 0.
        penalty: the reward of a decision that does not fit.
    """

    updates: int = 1000
    graphs: int = 1
    samples: int = 16
    epochs: int = 4
    learning_rate: float = 1e-4
    clip: float = 0.2
    entropy: float = 0.01
    gradient_norm: float = 0.5
    ratio: str = "mean"
    repair: bool = True
    penalty: float = PENALTY
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("ratio", self.ratio, ("mean", "node", "graph"))
