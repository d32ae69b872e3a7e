"""The GO paper's fourteen programs with their devices, and other sizes for training a policy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from solution.placement.graphs.architectures import (
    GNMT_STEPS,
    RNNLM_STEPS,
    make_amoebanet,
    make_gnmt,
    make_inception,
    make_rnnlm,
    make_transformer_xl,
    make_wavenet,
)
from solution.placement.graphs.cost_graph import CostGraph


@dataclass(frozen=True)
class Workload:
    """A program, and the number of devices that the GO paper gives it.

    Attributes:
        by_cost: whether a placement by hand has parts of equal cost; else of equally many layers.
    """

    name: str
    family: str
    devices: int
    make: Callable[[], CostGraph]
    by_cost: bool = False


DOCUMENT = (
    *(Workload(f"rnnlm-{n}", "rnnlm", n, partial(make_rnnlm, n)) for n in (2, 4, 8)),
    *(Workload(f"gnmt-{n}", "gnmt", n, partial(make_gnmt, n)) for n in (2, 4, 8)),
    *(Workload(f"transformer-xl-{n}", "transformer-xl", n, partial(make_transformer_xl, n))
      for n in (2, 4, 8)),
    *(Workload(f"inception-b{n}", "inception", 2, partial(make_inception, n), by_cost=True)
      for n in (32, 64)),
    Workload("amoebanet", "amoebanet", 4, make_amoebanet, by_cost=True),
    Workload("wavenet-2x18", "wavenet", 2, partial(make_wavenet, 2, 18), by_cost=True),
    Workload("wavenet-4x36", "wavenet", 4, partial(make_wavenet, 4, 36), by_cost=True),
)  # fmt: skip
# Training programs with few steps or cells: a graph has some hundred nodes.
SMALL = (
    *(Workload(f"rnnlm-{n}-small", "rnnlm", n, partial(make_rnnlm, n, 4)) for n in (2, 4)),
    *(Workload(f"gnmt-{n}-small", "gnmt", n, partial(make_gnmt, n, 3)) for n in (2, 4)),
    *(Workload(f"transformer-xl-{n}-small", "transformer-xl", n,
               partial(make_transformer_xl, n, 8)) for n in (2, 4)),
    Workload("amoebanet-small", "amoebanet", 4, partial(make_amoebanet, 3), by_cost=True),
    *(Workload(f"wavenet-{s}x{n}-small", "wavenet", s, partial(make_wavenet, s, n), by_cost=True)
      for s, n in ((2, 3), (4, 3))),
)  # fmt: skip


def _rnnlm(layers: int, steps: int) -> Workload:
    return Workload(f"rnnlm-{layers}x{steps}", "rnnlm", layers, partial(make_rnnlm, layers, steps))


def _gnmt(layers: int, steps: int) -> Workload:
    return Workload(f"gnmt-{layers}x{steps}", "gnmt", layers, partial(make_gnmt, layers, steps))


def _transformer_xl(layers: int, batch: int) -> Workload:
    make = partial(make_transformer_xl, layers, batch)
    return Workload(f"transformer-xl-{layers}-b{batch}", "transformer-xl", layers, make)


def _inception(batch: int) -> Workload:
    make = partial(make_inception, batch)
    return Workload(f"inception-b{batch}", "inception", 2, make, by_cost=True)


def _amoebanet(name: str, cells: int, first: int, last: int) -> Workload:
    make = partial(make_amoebanet, cells, first, last)
    return Workload(f"amoebanet-{name}", "amoebanet", 4, make, by_cost=True)


def _wavenet(stacks: int, layers: int) -> Workload:
    make = partial(make_wavenet, stacks, layers)
    return Workload(f"wavenet-{stacks}x{layers}", "wavenet", stacks, make, by_cost=True)


# The shipped policy learned from these: the GO paper's families, smaller or in other batch sizes.
TRAINING_PROGRAMS = (
    *SMALL,
    *(_rnnlm(*sizes) for sizes in ((1, 4), (2, 3), (2, 8), (3, 5), (4, 6), (6, 3))),
    *(_gnmt(*sizes) for sizes in ((1, 3), (2, 2), (2, 5), (3, 3), (3, 5))),
    *(_transformer_xl(*sizes) for sizes in ((3, 8), (4, 24), (6, 16), (8, 8))),
    *(_inception(batch) for batch in (8, 16)),
    *(_amoebanet(f"{cells}x{last}", cells, first, last)
      for cells, first, last in ((2, 64, 128), (4, 128, 256), (6, 190, 448))),
    *(_wavenet(*sizes) for sizes in ((1, 4), (2, 6), (3, 5))),
)  # fmt: skip
# Never trained on: sizes between those of the training programs, up to the largest of them.
HELD_OUT = (
    *(_rnnlm(*sizes) for sizes in ((3, 8), (5, 5))),
    *(_gnmt(*sizes) for sizes in ((3, 4), (2, 8))),
    *(_transformer_xl(*sizes) for sizes in ((5, 8), (7, 16))),
    _amoebanet("5x300", 5, 100, 300),
    *(_wavenet(*sizes) for sizes in ((1, 11), (2, 7))),
)
WORKLOADS = {workload.name: workload for workload in (*DOCUMENT, *TRAINING_PROGRAMS)}
DRAWN = 96  # number of drawn training programs, which are not used to choose a policy
# maxima at scale 1: layers x time steps of a recurrent network; layers of a WaveNet
CELLS, LAYERS = 40, 24
STEPS = {"rnnlm": RNNLM_STEPS, "gnmt": GNMT_STEPS}  # time steps of the GO paper's programs
# batch sizes for training the policy; the GO paper tests others
BATCHES = (4, 8, 12, 16, 24, 48, 96)


def draw_programs(count: int, seed: int = 0, scale: int = 1) -> list[Workload]:
    """Draw `count` more training programs, on two to eight devices, all different. Families
    alternate as long as they have another program. Sizes are drawn at random, up to `scale` times
    CELLS and LAYERS. No program is in TRAINING_PROGRAMS, HELD_OUT or DOCUMENT."""
    random = np.random.default_rng(seed)
    known = {workload.name for workload in TRAINING_PROGRAMS}
    held_out = {identify(workload.name) for workload in (*HELD_OUT, *DOCUMENT)}
    makers = (_draw_rnnlm, _draw_gnmt, _draw_transformer_xl, _draw_inception, _draw_amoebanet,
              _draw_wavenet)  # fmt: skip
    drawn: dict[str, Workload] = {}
    turn = 0
    while len(drawn) < count:
        found = makers[turn % len(makers)](random, scale)
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


def _draw_cells(random: np.random.Generator, most: int) -> tuple[int, int]:
    """Draw the numbers of layers and time steps of a recurrent network. Their product is at most
    `most`, except that there are at least two time steps."""
    layers = int(random.integers(1, 9))
    return layers, int(random.integers(2, max(most // layers, 2) + 1))


def _draw_rnnlm(random: np.random.Generator, scale: int) -> Workload:
    return _rnnlm(*_draw_cells(random, scale * CELLS))


def _draw_gnmt(random: np.random.Generator, scale: int) -> Workload:
    return _gnmt(*_draw_cells(random, scale * CELLS // 2))


def _draw_transformer_xl(random: np.random.Generator, scale: int) -> Workload:
    layers = int(random.integers(1, scale * LAYERS // 2 + 1))
    return _transformer_xl(layers, int(random.choice(BATCHES)))


def _draw_inception(random: np.random.Generator, _: int) -> Workload:
    return _inception(int(random.choice(BATCHES)))


def _draw_amoebanet(random: np.random.Generator, scale: int) -> Workload:
    cells = int(random.integers(2, scale * LAYERS // 2 + 1))
    first = int(random.integers(48, 257))
    last = int(first * random.uniform(1, 3))
    return _amoebanet(f"{cells}x{first}x{last}", cells, first, last)


def _draw_wavenet(random: np.random.Generator, scale: int) -> Workload:
    stacks = int(random.integers(1, 5))
    return _wavenet(stacks, int(random.integers(2, scale * LAYERS // stacks + 1)))
