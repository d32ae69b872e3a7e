"""Label the configurations of a program for a TPU with the compiler's estimates of their times.

Nothing is measured, so nothing is repeated: a configuration has the same estimate in every process.
Drawing depends only on the seed and on earlier results, so a resumed collection ends with the same
labels.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from solution.collecting.journal import REFUSED, SOUND, Journal
from solution.collecting.labelling import PARENTS, Tell
from solution.collecting.spaces import (
    CompilerSpace,
    draw_untried,
    name_configuration,
    read_configuration,
)
from solution.collecting.target import Target, find_libtpu_version
from solution.collecting.timing import Outcome
from solution.collecting.tpu.asking import (
    TAKEN,
    UNSEEN,
    UNTAKEN,
    compare_with_asked,
    find_fixed_boundary,
)
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.journal import ESTIMATES, read_estimates
from solution.collecting.tpu.layouts import PROBES, TpuLayoutSpace
from solution.domain.labels import name_estimate
from solution.programs.child import Child, Limits
from solution.programs.compiler import check_installed
from solution.programs.program import Program
from solution.system.errors import InputError
from solution.system.terminal import say
from solution.system.wording import spell

# Of the time of a full compilation, what a configuration takes at least: where all kernels are
# known, the passes over HLO alone.
LEAST_SHARE = 0.1
LEARN_EVERY = 8  # candidates between updates of the layouts that the compiler does not take
LOWERING_MEGABYTES = 4096  # limit of the child that reads program files


@dataclass(frozen=True)
class EstimatingWorkers:
    """The child that reads programs, and those that compile for the target."""

    compiling: Child
    estimator: Estimator
    processes: int
    schema = ESTIMATES
    compiling_share = 1.0

    @property
    def label_source(self) -> str:
        """Return the name of target and compiler."""
        return name_estimate(self.estimator.target.name, f"libtpu {find_libtpu_version()}")

    def identify(self, program: Program) -> Mapping[str, Any]:
        """Return the program, the target and its compiler: estimates depend on no machine."""
        return {
            "program": program.module_digest,
            "jax": check_installed(),
            "target": self.estimator.target.name,
            "libtpu": find_libtpu_version(),
        }

    def start(
        self, program: Program, space: CompilerSpace, journal: Journal, seed: int
    ) -> "Estimation":
        """Return the Estimation of a program's configurations."""
        return Estimation(program, space, journal, self, seed)


@contextmanager
def open_estimating(target: Target, limits: Limits, processes: int) -> Iterator[EstimatingWorkers]:
    """Open the workers of a TPU, as solution.collecting.labelling.open_workers does."""
    lowering = Limits(limits.seconds, LOWERING_MEGABYTES)
    with (
        Estimator(target, limits, processes=processes) as estimator,
        Child(lowering) as compiling,
    ):
        yield EstimatingWorkers(compiling, estimator, processes)


class Estimation:
    """Compile configurations for a TPU in parallel; the labels are estimates."""

    def __init__(
        self,
        program: Program,
        space: CompilerSpace,
        journal: Journal,
        workers: EstimatingWorkers,
        seed: int,
    ) -> None:
        self._program, self._space, self._journal = program, space, journal
        self._estimator = workers.estimator
        self._boundary = find_fixed_boundary(program.module)
        self._seed = seed
        self._foretold: list[float] = list(journal.state.get("foretold_seconds", []))
        self.batch = workers.processes

    def open(self, tell: Tell, wanted: int) -> None:
        """Compile the default configuration; tell an estimate of the total duration.

        Raises InputError if the compiler refuses it.
        """
        default = self._space.default
        if name_configuration(default) in self._journal.names:
            return
        tell("compiling the program as it is")
        (answer,) = self._estimate([default])
        if answer.nanoseconds is None:
            raise InputError(
                f"{self._program.name}: the compiler for {self._estimator.target.name} does not "
                f"take the program as it is: {answer.refused.rstrip('.')}. Expected one that it "
                "compiles within the limits."
            )
        self._add(default, answer)
        self._foretell(answer.processor_seconds, wanted)

    def draw(self, count: int, wanted: int) -> list[np.ndarray]:
        """Draw each configuration by the seed and its number."""
        tried = len(self._journal.candidates)
        if isinstance(self._space, TpuLayoutSpace):
            probes = [self._space.probe(number) for number in range(PROBES)]
            left = [own for own in probes if name_configuration(own) not in self._journal.names]
            if left:
                return left[:count]
            seen = max(tried - tried % LEARN_EVERY, min(tried, 1 + PROBES))
            self._space.learn(self._find_untaken(self._space, seen))
            count = min(count, LEARN_EVERY - tried % LEARN_EVERY)
        found: list[np.ndarray] = []
        known, parents = self._journal.names, self._find_fastest(wanted)
        for _ in range(count):
            generator = np.random.default_rng([self._seed, len(known)])
            drawn = draw_untried(self._space, generator, 1, known, parents)
            found += drawn
            known |= {name_configuration(values) for values in drawn}
        return found

    def label(self, drawn: Sequence[np.ndarray]) -> None:
        """Compile configurations in parallel; write each into the journal, in order."""
        for values, answer in zip(drawn, self._estimate(drawn), strict=True):
            self._add(values, answer)

    def look(self) -> None:
        """Do nothing: estimates are known at once."""

    def finish(self, deadline: float, tell: Tell) -> None:
        """Do nothing: estimates are final."""

    def summarise(self) -> Outcome:
        """Return the estimates, which no repetition would change."""
        return read_estimates(self._journal.candidates)

    def describe(self) -> dict[str, Any]:
        """Return the number of different programs, and how many requested layouts were taken."""
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

    def _estimate(self, drawn: Sequence[np.ndarray]) -> Iterator[Answer]:
        prepared = (self._space.prepare(values) for values in drawn)
        return self._estimator.estimate_many(
            [(module, flags.options, self._boundary) for module, flags in prepared]
        )

    def _add(self, values: np.ndarray, answer: Answer) -> None:
        """Write a configuration's answer into the journal."""
        states = np.empty(0, np.int8)
        if isinstance(self._space, TpuLayoutSpace) and answer.compiled is not None:
            states = compare_with_asked(answer.compiled, self._program, values)
        self._journal.add_candidate(
            name_configuration(values),
            values,
            SOUND if answer.nanoseconds is not None else REFUSED,
            answer.refused,
            answer.processor_seconds,
            answer.nanoseconds,
            answer.program,
            int((states == TAKEN).sum()),
            np.flatnonzero(states == UNTAKEN).tolist(),
            int((states == UNSEEN).sum()),
        )

    def _find_untaken(self, space: TpuLayoutSpace, seen: int) -> set[tuple[int, int]]:
        """Return (configurable, choice) that the compiler mostly ignored in the first `seen`
        candidates."""
        asked: Counter[tuple[int, int]] = Counter()
        untaken: Counter[tuple[int, int]] = Counter()
        rows = self._journal.candidates.head(seen).filter(pl.col("status") == SOUND)
        for data, nodes in rows.select("values", "untaken").iter_rows():
            values = read_configuration(data, space.default)
            asked.update(space.list_choices(values))
            untaken.update(pair for pair in space.list_choices(values) if pair[0] in nodes)
        return {pair for pair, number in untaken.items() if 2 * number >= asked[pair]}

    def _find_fastest(self, wanted: int) -> list[np.ndarray]:
        """Return the fastest of the first `wanted` sound configurations."""
        fastest = self._journal.sound().head(wanted).sort("nanoseconds", maintain_order=True)
        data = fastest.head(PARENTS)["values"]
        return [read_configuration(own, self._space.default) for own in data]

    def _foretell(self, seconds: float, wanted: int) -> None:
        """Tell the estimated duration of all configurations, from the program's first
        compilation."""
        if not seconds:  # it was in the cache, as all others may be
            return
        low, high = seconds * (1 + LEAST_SHARE * (wanted - 1)), seconds * wanted
        self._foretold = [low, high]
        say(
            f"{self._program.name}: compiling it took {seconds:.1f} s of processor time; "
            f"{wanted} configurations take {spell(low / self.batch)} to "
            f"{spell(high / self.batch)}, less where kernels are known already."
        )
