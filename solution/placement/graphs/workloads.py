"""The document's fourteen programs with their devices, and smaller ones of the same families."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from solution.placement.graphs.attention import make_transformer_xl
from solution.placement.graphs.convolutional import make_amoebanet, make_inception, make_wavenet
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.graphs.recurrent import make_gnmt, make_rnnlm


@dataclass(frozen=True)
class Workload:
    """A program, and the machine that the document has for it.

    Attributes:
        by_cost: whether a person would divide it by cost (cells), or by number (layers).
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
# Few steps or cells, to learn from: a graph has some hundred nodes.
SMALL = (
    *(Workload(f"rnnlm-{n}-small", "rnnlm", n, partial(make_rnnlm, n, 4)) for n in (2, 4)),
    *(Workload(f"gnmt-{n}-small", "gnmt", n, partial(make_gnmt, n, 3)) for n in (2, 4)),
    *(Workload(f"transformer-xl-{n}-small", "transformer-xl", n,
               partial(make_transformer_xl, n, 8)) for n in (2, 4)),
    Workload("amoebanet-small", "amoebanet", 4, partial(make_amoebanet, 3), by_cost=True),
    *(Workload(f"wavenet-{s}x{n}-small", "wavenet", s, partial(make_wavenet, s, n), by_cost=True)
      for s, n in ((2, 3), (4, 3))),
)  # fmt: skip
# What the shipped policy learns from: other sizes of the same families, none of the document's own.
# Its Transformer-XLs and Inceptions differ from them in the batch alone, its others are larger.
LESSONS = (
    *SMALL,
    *(Workload(f"rnnlm-{n}x{steps}", "rnnlm", n, partial(make_rnnlm, n, steps))
      for n, steps in ((1, 4), (2, 3), (2, 8), (3, 5), (4, 6), (6, 3))),
    *(Workload(f"gnmt-{n}x{steps}", "gnmt", n, partial(make_gnmt, n, steps))
      for n, steps in ((1, 3), (2, 2), (2, 5), (3, 3), (3, 5))),
    *(Workload(f"transformer-xl-{n}-b{batch}", "transformer-xl", n,
               partial(make_transformer_xl, n, batch))
      for n, batch in ((3, 8), (4, 32), (6, 16), (8, 8))),
    *(Workload(f"inception-b{batch}", "inception", 2, partial(make_inception, batch), by_cost=True)
      for batch in (8, 16)),
    *(Workload(f"amoebanet-{cells}x{last}", "amoebanet", 4,
               partial(make_amoebanet, cells, first, last), by_cost=True)
      for cells, first, last in ((2, 64, 128), (4, 128, 256), (6, 190, 448))),
    *(Workload(f"wavenet-{n}x{layers}", "wavenet", n, partial(make_wavenet, n, layers),
               by_cost=True)
      for n, layers in ((1, 4), (2, 6), (3, 5))),
)  # fmt: skip
WORKLOADS = {workload.name: workload for workload in (*DOCUMENT, *LESSONS)}
