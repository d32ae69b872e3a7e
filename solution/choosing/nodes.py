"""Compile the configurations of a search for a TPU on the nodes of a cluster."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from solution.collecting.tpu.estimator import Answer, Asked, Estimator
from solution.collecting.tpu.libtpu import EntryLayouts, Option
from solution.collecting.tpu.target import TpuTarget, find_libtpu_version
from solution.programs.child import Limits
from solution.system.errors import InputError
from solution.system.report import Report, silent
from solution.training.executors.base import Executor, Needs, Task

# {(target, limits): estimator}; a process on a node uses one estimator for many tasks
_estimators: dict[tuple[str, Limits], Estimator] = {}


@dataclass(frozen=True)
class EstimateThere:
    """A job for a node of a cluster: compile a module and return the compiler's answer."""

    target: TpuTarget
    limits: Limits
    libtpu: str  # the version of libtpu that the node must have

    def __call__(
        self,
        module: bytes,
        options: Sequence[Option],
        layouts: EntryLayouts | None,
        report: Report,
    ) -> Answer:
        """Compile a module and return the answer, see `Estimator.estimate`. Raises InputError if
        this node cannot compile for the target or has another version of libtpu."""
        if (found := find_libtpu_version()) != self.libtpu:
            raise InputError(
                f"A node has libtpu {found}, expected {self.libtpu}. Install the same on all nodes."
            )
        key = self.target.name, self.limits
        if key not in _estimators:
            _estimators[key] = Estimator(self.target, self.limits)
        return _estimators[key].estimate(module, options, layouts)


class ClusterEstimator:
    """Like Estimator, but compiles on the nodes of a cluster; each node has a separate cache."""

    def __init__(self, target: TpuTarget, limits: Limits, nodes: Executor) -> None:
        self.target = target
        self._work = EstimateThere(target, limits, find_libtpu_version())
        self._needs, self._nodes = Needs(bytes=limits.megabytes << 20), nodes

    def estimate_many(self, given: Iterable[Asked]) -> Iterator[Answer]:
        """Yield the answer for each (module, options, entry layouts), in order, once all are known.
        Raises InputError if a node cannot compile."""
        tasks = [
            Task(f"configuration {n}", asked, self._needs) for n, asked in enumerate(given, start=1)
        ]
        answers: dict[int, Answer] = {}
        self._nodes.run(self._work, tasks, _Silent(), answers.__setitem__)
        yield from (answers[number] for number in range(len(tasks)))


class _Silent:
    """A progress display that shows nothing, because the search has its own progress line."""

    def job(self, name: str) -> AbstractContextManager[Report]:
        return nullcontext(silent)

    def advance(self) -> None: ...
