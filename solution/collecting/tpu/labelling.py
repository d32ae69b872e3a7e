"""Label the configurations of a program for a TPU with the compiler's estimates of their times.

Nothing is measured, so nothing is repeated: every process gets the same estimate.
Drawn configurations depend only on the seed and on earlier results, so a resumed collection ends
with the same labels.

A configuration is sound if the compiler accepts it. A collection's journal has one row for each
configuration that was tried.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from solution.collecting.journal import CANDIDATES, REFUSED, SOUND, Journal
from solution.collecting.program_space import ProgramSpace
from solution.collecting.space import draw_new, name_config
from solution.collecting.target import Tell
from solution.collecting.timing import Outcome
from solution.collecting.tpu.asking import (
    REQUEST_RULES,
    TAKEN,
    UNSEEN,
    UNTAKEN,
    compare_with_asked,
    find_fixed_boundary,
)
from solution.collecting.tpu.duration import Duration
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.space import PROBES, TpuSpace
from solution.collecting.tpu.target import TpuTarget, find_libtpu_version
from solution.domain.graph import name_estimate
from solution.programs.child import Child, Limits
from solution.programs.compiler import check_installed
from solution.programs.program import Program
from solution.system.errors import InputError
from solution.system.terminal import say

LEARN_EVERY = 8  # after each 8 configurations, find the layouts that the compiler often ignores
MOST_IGNORED = 0.25  # share of ignored requests from which a node's layout is not requested
PARENTS = 6  # number of fastest configurations that new ones are bred from
LOWERING_MEGABYTES = 4096  # memory limit of the child process that reads program files
ESTIMATES = pl.Schema(
    {
        **CANDIDATES,  # the column compile_seconds holds processor time
        "nanoseconds": pl.Float64(),  # the estimate; null if the compiler refused the configuration
        # hash of the compiled program; equal if two configurations compile to the same program
        "program": pl.String(),
        # number of requested output layouts that the compiled program has
        "taken": pl.Int32(),
        # positions of configurable nodes whose output has another layout than requested
        "untaken": pl.List(pl.Int32()),
        # number of requested layouts whose instruction is not in the compiled program
        "unseen": pl.Int32(),
    }
)


@dataclass(frozen=True)
class EstimatingWorkers:
    """The child process that reads programs, and the estimator with its compiling processes."""

    compiling: Child
    estimator: Estimator
    processes: int
    compiling_share = 1.0

    @property
    def label_source(self) -> str:
        return name_estimate(self.estimator.target.name, f"libtpu {find_libtpu_version()}")

    def identify(self, program: Program) -> Mapping[str, Any]:
        """Return the facts that estimates depend on: program, jax, target, libtpu and the rules by
        which layouts are requested. Estimates do not depend on the machine."""
        return {
            "program": program.module_digest,
            "jax": check_installed(),
            "target": self.estimator.target.name,
            "libtpu": find_libtpu_version(),
            "request_rules": REQUEST_RULES,
        }

    def start(
        self, program: Program, space: ProgramSpace, journal: Journal, seed: int
    ) -> "Estimation":
        assert isinstance(space, TpuSpace)
        return Estimation(program, space, journal, self, seed)


@contextmanager
def open_estimating(
    target: TpuTarget, limits: Limits, processes: int
) -> Iterator[EstimatingWorkers]:
    """Yield the workers that label for a TPU, with `processes` parallel compilations; close the
    workers afterwards."""
    lowering = Limits(limits.seconds, LOWERING_MEGABYTES)
    with (
        Estimator(target, limits, processes=processes) as estimator,
        Child(lowering) as compiling,
    ):
        yield EstimatingWorkers(compiling, estimator, processes)


class Estimation:
    """Labels configurations of a program with estimates, by compiling them for a TPU in
    parallel."""

    def __init__(
        self,
        program: Program,
        space: TpuSpace,
        journal: Journal,
        workers: EstimatingWorkers,
        seed: int,
    ) -> None:
        self._program, self._space, self._journal = program, space, journal
        self._estimator = workers.estimator
        self._boundary = find_fixed_boundary(program.module)
        self._seed = seed
        # predicted processor seconds of all compilations; None if not predicted
        self._foretold: float | None = journal.state.get("foretold_seconds")
        self.batch = workers.processes

    def open(self, tell: Tell, wanted: int) -> None:
        """Compile the default configuration, and say how long all configurations will take."""
        default = self._space.default
        if name_config(default) in self._journal.names:
            return
        tell("compiling the program as it is")
        (answer,) = self._estimate(default[None])
        if answer.nanoseconds is None:
            raise InputError(
                f"{self._program.name}: the compiler for {self._estimator.target.name} does not "
                f"take the program as it is: {answer.refused.rstrip('.')}. Expected one that it "
                "compiles within the limits."
            )
        self._add(default, answer)
        duration = Duration(self._space, wanted - 1)
        duration.begin(answer.processor_seconds, answer.passes_seconds)
        if duration.is_known:
            self._foretold = duration.total
            say(duration.describe(self._program.name, self.batch))

    def draw(self, count: int, wanted: int) -> np.ndarray:
        """Return at most `count` new configurations. If layouts vary, the first ones are probes,
        which show the layouts that the compiler ignores. The others are random, or made from the
        fastest ones; the seed is the collection's and the number of earlier configurations."""
        tried, known = len(self._journal.candidates), self._journal.names
        if self._space.layout_sites:
            probes = [self._space.probe(number) for number in range(PROBES)]
            left = [config for config in probes if name_config(config) not in known]
            if left:
                return np.array(left[:count])
            # Count ignored layouts only in the default and the probes, later in a number of
            # configurations that LEARN_EVERY divides, so that a resumed collection draws the same.
            seen = max(tried - tried % LEARN_EVERY, min(tried, 1 + PROBES))
            self._space.learn(self._find_untaken(seen))
            count = min(count, LEARN_EVERY - tried % LEARN_EVERY)
        parents = self._find_fastest(wanted) if self._space.varies_fastest else None
        found = [self._space.default[None][:0]]
        for _ in range(count):
            generator = np.random.default_rng([self._seed, len(known)])
            found.append(draw_new(self._space, generator, 1, known, parents))
            known |= {name_config(config) for config in found[-1]}
        return np.concatenate(found)

    def label(self, configs: np.ndarray) -> None:
        for config, answer in zip(configs, self._estimate(configs), strict=True):
            self._add(config, answer)

    def look(self) -> None:
        """Do nothing: unlike measurements, estimates are final at once."""

    def finish(self, deadline: float, tell: Tell) -> None:
        """Do nothing: unlike measurements, estimates are not repeated."""

    def summarise(self) -> Outcome:
        return read_estimates(self._journal.sound())

    def describe(self) -> dict[str, Any]:
        """Return facts about a collection: the target, the number of different compiled programs,
        the numbers of requested layouts that were taken, untaken and unseen (see ESTIMATES), and
        the processor seconds, spent and predicted."""
        sound = self._journal.sound()
        return {
            "target": self._estimator.target.name,
            "programs": sound["program"].n_unique(),
            "taken": int(sound["taken"].sum()),
            "untaken": int(sound["untaken"].list.len().sum()),
            "unseen": int(sound["unseen"].sum()),
            "processor_seconds": float(self._journal.candidates["compile_seconds"].sum()),
            "foretold_seconds": self._foretold,
        }

    def _estimate(self, configs: np.ndarray) -> Iterator[Answer]:
        prepared = (self._space.prepare(config) for config in configs)
        return self._estimator.estimate_many(
            [(module, flags.options, self._boundary) for module, flags in prepared]
        )

    def _add(self, config: np.ndarray, answer: Answer) -> None:
        """Write a configuration's estimate, and which requested layouts the compiler used, into the
        journal."""
        states = np.empty(0, np.int8)
        if self._space.layout_sites and answer.compiled is not None:
            layouts = self._space.layouts(config[None])[0]
            states = compare_with_asked(answer.compiled, self._program, layouts)
        self._journal.add_candidate(
            name_config(config),
            config,
            SOUND if answer.nanoseconds is not None else REFUSED,
            answer.refused,
            answer.processor_seconds,
            answer.nanoseconds,
            answer.program,
            int((states == TAKEN).sum()),
            np.flatnonzero(states == UNTAKEN).tolist(),
            int((states == UNSEEN).sum()),
        )

    def _find_untaken(self, seen: int) -> set[tuple[int, int]]:
        """Return the pairs (configurable node, choice of layouts) that the compiler often ignored.

        Only the first `seen` configurations of the journal (one row per configuration) are counted.
        """
        rows = self._journal.candidates.head(seen).filter(pl.col("status") == SOUND)
        return find_ignored(
            (self._space.list_choices(self._space.from_bytes(data)), nodes)
            for data, nodes in rows.select("values", "untaken").iter_rows()
        )

    def _find_fastest(self, wanted: int) -> np.ndarray:
        """Return the PARENTS fastest of the first `wanted` configurations that the compiler
        accepted, fastest first; the default configuration if there are none."""
        fastest = self._journal.sound().head(wanted).sort("nanoseconds", maintain_order=True)
        found = [self._space.from_bytes(data) for data in fastest.head(PARENTS)["values"]]
        return np.array(found or [self._space.default])


def find_ignored(
    requests: Iterable[tuple[Sequence[tuple[int, int]], Sequence[int]]],
) -> set[tuple[int, int]]:
    """Return the pairs (configurable node, choice of layouts) that the compiler often ignored (see
    MOST_IGNORED). `requests`: each configuration's pairs, and the nodes whose choice was ignored.
    """
    asked: Counter[tuple[int, int]] = Counter()
    untaken: Counter[tuple[int, int]] = Counter()
    for pairs, nodes in requests:
        asked.update(pairs)
        untaken.update(pair for pair in pairs if pair[0] in nodes)
    return {pair for pair, number in untaken.items() if number >= MOST_IGNORED * asked[pair]}


def read_estimates(sound: pl.DataFrame) -> Outcome:
    """Return the estimates of `sound` configurations (those the compiler accepted) as an Outcome.
    Its two halves hold the same estimates, because estimates are not repeated."""
    nanoseconds = round_estimates(sound["nanoseconds"].to_numpy())
    return Outcome(sound["config"].to_list(), np.stack([nanoseconds, nanoseconds]), 1.0)


def round_estimates(nanoseconds: np.ndarray) -> np.ndarray:
    """Return estimates as int64 nanoseconds, as in tuning records. They are at least 2, because a
    tuning record with 1 or less counts as not timed."""
    return np.maximum(np.rint(nanoseconds), 2).astype(np.int64)
