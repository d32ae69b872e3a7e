"""Settings of the policy and of its training."""

from dataclasses import dataclass

from solution.models.settings import MAX_DEPTH, MAX_WIDTH, check_choice, check_size
from solution.placement.evaluation import PENALTY, TASKS
from solution.placement.simulation.decision import FUSION_LEVELS, PRIORITY_LEVELS
from solution.system.errors import InputError

# number of outputs of the placement head = maximum number of devices; outputs for devices that a
# machine lacks are masked
MAX_HEAD = 8
FINE_TUNING_RATE = 5e-5  # learning rate of PPO after imitation; from scratch: 1e-4
CHOICES = {
    "topology": ("sage", "none"),
    "attention": ("segments", "lstm", "none"),
    "modulation": ("graph", "node", "none"),
}
# Bounds of each setting: without them, a policy's file could ask for a net of any size.
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
    """Settings of the policy network. The shipped policy has fewer layers, and one round.

    The architecture is the GO paper's, without dropout and value net; neighbours' votes on devices
    (`agreement`) are an addition. Ablations: with "none", `topology` and `attention` treat each
    node alone, and `modulation` has no effect; `attention` "lstm" is an LSTM along the nodes;
    `modulation` "node" has factors for each node instead of the graph. Each of the `rounds` decides
    all tasks, and reads the probabilities of the round before.
    """

    tasks: tuple[str, ...] = TASKS  # the tasks that the policy decides, in this order
    width: int = 128
    embedding_layers: int = 2
    attention_layers: int = 3
    heads: int = 8
    segment: int = 256
    inner: int = 512
    rounds: int = 3
    topology: str = "sage"
    attention: str = "segments"
    memory: bool = True  # whether a segment attends to the previous segment
    modulation: str = "graph"
    agreement: int = 8  # mean-field iterations on devices; 0: nodes decide independently

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
        """Return how many actions a node can choose from in the task."""
        return {"placement": MAX_HEAD, "schedule": PRIORITY_LEVELS, "fusion": FUSION_LEVELS}[task]


@dataclass(frozen=True)
class PolicyTraining:
    """Settings of PPO.

    `ratio`: PPO's probability ratio is the geometric mean over a decision's nodes ("mean"), the
    product over them ("graph"), or one ratio per node ("node"). It is clipped to 1 - clip ... 1 +
    clip. With clip=0 and one epoch, PPO is REINFORCE. Each of the `graphs` of an update gets
    `samples` decisions and `epochs` steps. `repair`: decisions that overfill a device are repaired;
    without it they get the penalty.
    """

    updates: int = 1000  # maximum number of updates
    graphs: int = 1
    samples: int = 16
    epochs: int = 4
    learning_rate: float = 1e-4
    clip: float = 0.2
    entropy: float = 0.01  # weight of the entropy bonus, divided by sqrt(nodes); decays to 0
    gradient_norm: float = 0.5
    ratio: str = "mean"
    repair: bool = True
    penalty: float = PENALTY  # reward of a decision that does not fit
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("ratio", self.ratio, ("mean", "node", "graph"))
