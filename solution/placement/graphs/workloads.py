"""The GO paper's fourteen programs with their devices, and other sizes for training a policy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from solution.placement.graphs import architectures
from solution.placement.graphs.cost_graph import CostGraph


@dataclass(frozen=True)
class Workload:
    """A program, and the number of devices that the GO paper gives it. `by_cost`: whether parts of
    a placement by hand have equal cost, not equally many layers."""

    name: str
    family: str
    devices: int
    make: Callable[[], CostGraph]
    by_cost: bool = False


# family -> function that makes a program of given sizes, and format of the sizes in its name
MAKERS: dict[str, tuple[Callable[..., CostGraph], str]] = {
    "rnnlm": (architectures.make_rnnlm, "{}x{}"),
    "gnmt": (architectures.make_gnmt, "{}x{}"),
    "transformer-xl": (architectures.make_transformer_xl, "{}-b{}"),
    "inception": (architectures.make_inception, "b{}"),
    "amoebanet": (architectures.make_amoebanet, "{}x{}x{}"),
    "wavenet": (architectures.make_wavenet, "{}x{}"),
}
# number of devices of these families' programs; other families: one device per layer or stack
DEVICES = {"inception": 2, "amoebanet": 4}
BY_COST = ("inception", "amoebanet", "wavenet")


def _workload(family: str, *sizes: int, name: str = "") -> Workload:
    """Return a program of a family; `name` replaces the sizes in the program's name."""
    make, form = MAKERS[family]
    devices = DEVICES.get(family, sizes[0])
    whole = f"{family}-{name or form.format(*sizes)}"
    return Workload(whole, family, devices, partial(make, *sizes), family in BY_COST)


# The GO paper's fourteen programs.
DOCUMENT = (
    *(_workload(family, n, name=str(n)) for family in ("rnnlm", "gnmt", "transformer-xl")
      for n in (2, 4, 8)),
    *(_workload("inception", n) for n in (32, 64)),
    Workload("amoebanet", "amoebanet", 4, architectures.make_amoebanet, by_cost=True),
    *(_workload("wavenet", *sizes) for sizes in ((2, 18), (4, 36))),
)  # fmt: skip
# Training programs with few steps or cells: a graph has some hundred nodes.
SMALL = (
    *(_workload(family, n, size, name=f"{n}-small")
      for family, size in (("rnnlm", 4), ("gnmt", 3), ("transformer-xl", 8)) for n in (2, 4)),
    _workload("amoebanet", 3, name="small"),
    *(_workload("wavenet", n, 3, name=f"{n}x3-small") for n in (2, 4)),
)  # fmt: skip
# The shipped policy learned from these: the GO paper's families, smaller or in other batch sizes.
TRAINING_PROGRAMS = (
    *SMALL,
    *(_workload("rnnlm", *sizes) for sizes in ((1, 4), (2, 3), (2, 8), (3, 5), (4, 6), (6, 3))),
    *(_workload("gnmt", *sizes) for sizes in ((1, 3), (2, 2), (2, 5), (3, 3), (3, 5))),
    *(_workload("transformer-xl", *sizes) for sizes in ((3, 8), (4, 24), (6, 16), (8, 8))),
    *(_workload("inception", batch) for batch in (8, 16)),
    *(_workload("amoebanet", *sizes, name=f"{sizes[0]}x{sizes[2]}")
      for sizes in ((2, 64, 128), (4, 128, 256), (6, 190, 448))),
    *(_workload("wavenet", *sizes) for sizes in ((1, 4), (2, 6), (3, 5))),
)  # fmt: skip
# Programs that are never trained on; most of their sizes lie between sizes of TRAINING_PROGRAMS.
HELD_OUT = (
    *(_workload("rnnlm", *sizes) for sizes in ((3, 8), (5, 5))),
    *(_workload("gnmt", *sizes) for sizes in ((3, 4), (2, 8))),
    *(_workload("transformer-xl", *sizes) for sizes in ((5, 8), (7, 16))),
    _workload("amoebanet", 5, 100, 300, name="5x300"),
    *(_workload("wavenet", *sizes) for sizes in ((1, 11), (2, 7))),
)
WORKLOADS = {workload.name: workload for workload in (*DOCUMENT, *TRAINING_PROGRAMS)}
# number of drawn programs that are reserved for training: never used for validation
DRAWN = 96
# maxima at scale 1. CELLS: layers x time steps of a recurrent network. LAYERS: layers of a WaveNet.
CELLS, LAYERS = 40, 24
# number of time steps of the recurrent networks in DOCUMENT, whose names do not contain it
STEPS = {
    "rnnlm": architectures.RNNLM_STEPS,
    "gnmt": architectures.GNMT_STEPS,
}
# batch sizes for training the policy; the GO paper tests others
BATCHES = (4, 8, 12, 16, 24, 48, 96)


def draw_programs(count: int, seed: int = 0, scale: int = 1) -> list[Workload]:
    """Draw `count` different programs on two to eight devices, none of them in TRAINING_PROGRAMS,
    HELD_OUT or DOCUMENT. Families alternate; sizes are up to `scale` times CELLS and LAYERS."""
    random = np.random.default_rng(seed)
    known = {workload.name for workload in TRAINING_PROGRAMS}
    held_out = {identify(workload.name) for workload in (*HELD_OUT, *DOCUMENT)}
    families, drawn = list(MAKERS), dict[str, Workload]()
    turn = 0
    while len(drawn) < count:
        found = _draw(families[turn % len(families)], random, scale)
        turn += 1
        name = found.name
        if name not in known and name not in drawn and identify(name) not in held_out:
            drawn[name] = replace(found, devices=int(random.choice((2, 3, 4, 8))))
    return list(drawn.values())


def draw_validation_programs() -> list[Workload]:
    """Draw 36 programs for validation: policies are chosen by them and never trained on them."""
    learned = {workload.name for workload in draw_programs(DRAWN)}
    return [w for w in draw_programs(120, seed=7) if w.name not in learned][:36]


def identify(name: str) -> str:
    """Return a value that is the same for two names of one graph. A WaveNet depends only on the
    total number of layers of all its stacks; the names of the GO paper's recurrent networks do not
    contain their number of steps."""
    family, _, sizes = name.rpartition("-")
    if family in STEPS and "x" not in sizes:
        return f"{name}x{STEPS[family]}"
    if family != "wavenet":
        return name
    stacks, layers = map(int, sizes.split("x"))
    return f"{family}-{stacks * layers}"


def _draw(family: str, random: np.random.Generator, scale: int) -> Workload:
    if family in STEPS:  # layers x time steps: at most CELLS, but at least two time steps
        layers = int(random.integers(1, 9))
        most = scale * CELLS // (1 if family == "rnnlm" else 2) // layers
        return _workload(family, layers, int(random.integers(2, max(most, 2) + 1)))
    if family == "transformer-xl":
        layers = int(random.integers(1, scale * LAYERS // 2 + 1))
        return _workload(family, layers, int(random.choice(BATCHES)))
    if family == "inception":
        return _workload(family, int(random.choice(BATCHES)))
    if family == "amoebanet":
        cells = int(random.integers(2, scale * LAYERS // 2 + 1))
        first = int(random.integers(48, 257))
        return _workload(family, cells, first, int(first * random.uniform(1, 3)))
    stacks = int(random.integers(1, 5))
    return _workload(family, stacks, int(random.integers(2, scale * LAYERS // stacks + 1)))
