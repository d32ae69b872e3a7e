"""Find the copies of a layer in a program: instructions that repeat back to back.

A program unrolled by Python has a layer's instructions once for each copy. A run is a range of
instructions in which each instruction equals the one `period` positions later: same opcode, shapes
and attributes, while operands may differ. Instructions at equal positions of the copies correspond.
Sites are the instructions whose layouts a search chooses.

Parallel branches are not copies of a layer: the dots that compute a query and a key read the same
tensor, and neither result depends on the other. So a run counts only if values flow through all of
it, or if corresponding sites read different tensors (gradients of the layers' weights).

Parameters, and values computed from constants alone, are ignored, because they need not repeat:
layers share them, or they precede the first layer that reads them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from solution.collecting.tpu.asking import inline_calls
from solution.collecting.tpu.canonical import Names
from solution.programs.hlo.messages import instructions
from solution.programs.portable import make_portable

# opcodes of constants, and of values that come from outside the computation
CONSTANT, FED = ("constant", "iota"), ("parameter", "infeed", "after-all")
NEAR = 64  # periods to try: the distances from each site to the next NEAR equal sites


class Run(NamedTuple):
    """A range of positions, begin <= position < end, whose instructions repeat after `period`."""

    begin: int
    end: int
    period: int


class Line(NamedTuple):
    """The instructions of a computation in order, with calls inlined; without values from outside
    the computation (FED) and values computed from constants alone."""

    names: np.ndarray  # (positions,) equal numbers: equal instructions
    sites: np.ndarray  # (positions,) the site of each instruction; -1: none
    edges: np.ndarray  # (edges, 2) positions [consumer, producer]
    # pairs of a site's position and the id of a value that it reads, parameters included
    reads: frozenset[tuple[int, int]]


def group_copies(module: Any, sites: Mapping[int, int]) -> np.ndarray:
    """Return each site's group (sites,): corresponding sites of a layer's copies have equal groups.
    `module`: the program's message Module. `sites`: {instruction id: number of its site}."""
    called = {
        number
        for instruction in instructions(module)
        if instruction.opcode == "call"
        for number in instruction.called_computation_ids
    }
    inlined = make_portable(module, keeps_boundary=True)
    origins = inline_calls(inlined)
    names = Names(inlined)
    pairs = [np.zeros((0, 2), int)]
    for computation in inlined.computations:
        if computation.id not in called:  # skip those that were inlined into their callers
            line = _read_line(computation, names, origins, sites)
            pairs += [_pair_sites(line, run) for run in _find_runs(line)]
    first, second = np.concatenate(pairs).T
    graph = coo_array((np.ones(len(first)), (first, second)), (len(sites), len(sites)))
    return np.asarray(connected_components(graph, directed=False)[1])


def _read_line(
    computation: Any, names: Names, origins: Mapping[int, int], sites: Mapping[int, int]
) -> Line:
    """Return a computation as a Line. `origins`: {id of an inlined copy: id of its original};
    `sites`: see group_copies."""
    constant: set[int] = set()
    fed: set[int] = set()
    positions: dict[int, int] = {}
    found, own, edges, reads = [], [], [], []
    for one in computation.instructions:  # in order: operands stand before their readers
        operands = list(one.operand_ids)
        if one.opcode in CONSTANT or (operands and constant.issuperset(operands)):
            constant.add(one.id)
        elif one.opcode in FED or (one.opcode == "get-tuple-element" and operands[0] in fed):
            fed.add(one.id)
        else:
            edges += [(len(positions), positions[o]) for o in operands if o in positions]
            positions[one.id] = len(positions)
            found.append(names.name_kernel(one))
            own.append(sites.get(origins.get(one.id, one.id), -1))
            if own[-1] >= 0:
                reads += [(len(own) - 1, o) for o in operands if o not in constant]
    numbers = np.unique(np.array(found, "U32"), return_inverse=True)[1]
    return Line(numbers, np.array(own, int), np.array(edges, int).reshape(-1, 2), frozenset(reads))


def _find_runs(line: Line) -> Iterator[Run]:
    """Yield runs that do not overlap, chosen greedily: the run with most repeated sites first."""
    periods = _list_periods(line)
    is_site = line.sites >= 0
    # before[k]: number of sites at positions below k
    before = np.concatenate([[0], np.cumsum(is_site)])
    is_free = np.ones(len(line.names), bool)
    while True:
        runs = [run for period in periods for run in _repeat(line.names, is_free, period)]
        # for each run: number of sites in all copies but the first; ties go to the shorter period
        saved = [int(before[run.end] - before[run.begin + run.period]) for run in runs]
        order = sorted(range(len(runs)), key=lambda n: (-saved[n], runs[n].period, runs[n].begin))
        parts = (part for n in order if saved[n] for part in _keep_layers(line, runs[n]))
        best = next(parts, None)
        if best is None:
            return
        yield best
        is_free[best.begin : best.end] = False


def _list_periods(line: Line) -> list[int]:
    """Return the distances, ascending, between sites with equal instructions."""
    at = np.flatnonzero(line.sites >= 0)
    distances: set[int] = set()
    for name in np.unique(line.names[at]):
        equal = at[line.names[at] == name]
        for step in range(1, min(NEAR, len(equal) - 1) + 1):
            distances.update((equal[step:] - equal[:-step]).tolist())
    return sorted(distances)


def _repeat(names: np.ndarray, is_free: np.ndarray, period: int) -> Iterator[Run]:
    """Yield the longest runs of at least two copies, with this period, in free positions."""
    is_equal = (names[:-period] == names[period:]) & is_free[:-period] & is_free[period:]
    # +1 where a stretch of equal instructions begins, -1 behind its end
    changes = np.diff(np.concatenate([[False], is_equal, [False]]).astype(np.int8))
    for begin, end in zip(np.flatnonzero(changes > 0), np.flatnonzero(changes < 0), strict=True):
        if end - begin >= period:
            yield Run(int(begin), int(end) + period, period)


def _keep_layers(line: Line, run: Run) -> list[Run]:
    """Return the run if its copies are layers. If they look like parallel branches (see the
    module's docstring), return its parts through which values flow, of at least two copies."""
    cuts = _find_cuts(line, run)
    if not len(cuts) or not _shares_operands(line, run):
        return [run]
    ends = [run.begin, *cuts.tolist(), run.end]
    return [
        Run(begin, end, run.period)
        for begin, end in zip(ends, ends[1:], strict=False)
        if end - begin >= 2 * run.period
    ]


def _find_cuts(line: Line, run: Run) -> np.ndarray:
    """Return the positions p in a run where no edge leads from before p to p or later."""
    is_inside = ((line.edges >= run.begin) & (line.edges < run.end)).all(axis=1)
    consumers, producers = line.edges[is_inside].T - run.begin
    # An edge crosses the cuts before producer + 1, ..., consumer: add 1 at the first of them and -1
    # behind the last; the running sum is the number of edges that cross each cut.
    crossing = np.zeros(run.end - run.begin + 1, int)
    np.add.at(crossing, producers + 1, 1)
    np.add.at(crossing, consumers + 1, -1)
    return 1 + run.begin + np.flatnonzero(np.cumsum(crossing)[1:-1] == 0)


def _shares_operands(line: Line, run: Run) -> bool:
    """Return True if a site reads a tensor that the corresponding site of the next copy reads."""
    return any(
        (consumer + run.period, value) in line.reads
        for consumer, value in line.reads
        if run.begin <= consumer < run.end - run.period
    )


def _pair_sites(line: Line, run: Run) -> np.ndarray:
    """Return pairs (n, 2) of corresponding sites in consecutive copies."""
    sites = line.sites[run.begin : run.end]
    pairs = np.stack([sites[: -run.period], sites[run.period :]], axis=1)
    return pairs[(pairs >= 0).all(axis=1)]
