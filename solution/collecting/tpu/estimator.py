"""Estimate how long programs take on a TPU, in children that compile them.

Most configurations of a program need only the passes over HLO: their kernels are known from
configurations before. Where one is new, the program is compiled in full, and all of its kernels
are learned.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from solution.collecting.children import Child, ChildDiedError, Limits
from solution.collecting.target import Target, check_target, find_libtpu_version
from solution.collecting.tpu.canonical import hash_texts
from solution.collecting.tpu.compiled import CompiledProgram
from solution.collecting.tpu.devices import find_devices
from solution.collecting.tpu.estimate import estimate_time
from solution.collecting.tpu.forking import Compilation, Request, serve_tpu
from solution.collecting.tpu.kernels import KernelCache, find_cache_folder
from solution.collecting.tpu.reading import Reader
from solution.system.errors import InputError

DEFAULT_LIMITS = Limits(seconds=600.0, megabytes=8192)  # of one compilation
GRACE_SECONDS = 30.0  # for the child to say that the limit was reached
Option = tuple[str, bool | int | float | str]


@dataclass(frozen=True)
class Answer:
    """What became of a configuration."""

    nanoseconds: float | None  # the estimate of one run; None where it was refused
    refused: str = ""  # why there is no estimate
    program: str = ""  # equal for configurations that compile to the same program
    processor_seconds: float = 0.0  # of compiling, now
    is_full: bool = False  # it was compiled in full, because a kernel was new
    compiled: CompiledProgram | None = None


class Estimator:
    """Children that compile for a target, and the cache of what was compiled."""

    def __init__(
        self,
        target: Target,
        limits: Limits = DEFAULT_LIMITS,
        cache: Path | None = None,
        processes: int = 1,
        *,
        is_always_full: bool = False,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            target: a TPU.
            limits: of each compilation.
            cache: the folder of the cache; by default `kernels.find_cache_folder`.
            processes: how many compile side by side in `estimate_many`.
            is_always_full: compile every program in full, and look nothing up.
            factors: corrections by kind of kernel, see `estimate.estimate_time`.

        Raises InputError if this machine cannot compile for the target.
        """
        check_target(target)
        if not target.is_estimated:
            raise InputError(f"{target.name}: expected a TPU; the CPU is timed, not estimated.")
        self.target = target
        self.conflicts = 0  # kernels that were seen with two costs
        self._limits = limits
        self._is_always_full = is_always_full
        self._factors = factors
        self._version = find_libtpu_version()
        self._cache = KernelCache(find_cache_folder() if cache is None else cache)
        self._folder = tempfile.TemporaryDirectory(prefix="fastslow-tpu-")
        work: Any = partial(serve_tpu, target=target, folder=Path(self._folder.name))
        self._children = [Child(limits, work=work) for _ in range(processes)]

    def __enter__(self) -> "Estimator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the children."""
        for child in self._children:
            child.close()
        self._cache.close()
        self._folder.cleanup()

    def estimate(self, module: bytes, options: Iterable[Option] = ()) -> Answer:
        """Return what becomes of a serialized module (HloModuleProto) with XLA's options.

        However the compiler fails, there is an answer that says why.

        Raises InputError if the compiler cannot be started.
        """
        return self._estimate(self._children[0], module, tuple(options))

    def estimate_many(self, modules: Iterable[tuple[bytes, Sequence[Option]]]) -> Iterator[Answer]:
        """Yield the answers of modules with their options, in order, compiled side by side."""
        idle: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            idle.put(child)

        def work(given: tuple[bytes, Sequence[Option]]) -> Answer:
            child = idle.get()
            try:
                return self._estimate(child, given[0], tuple(given[1]))
            finally:
                idle.put(child)

        with ThreadPoolExecutor(len(self._children)) as pool:
            yield from pool.map(work, modules)

    def _estimate(self, child: Child, module: bytes, options: tuple[Option, ...]) -> Answer:
        context = hash_texts(self.target.name, self._version, sorted(options))
        key = hash_texts(context, module)
        if not self._is_always_full:
            kept = self._cache.find_compilation(key)
            if kept is not None and (answer := self._look_up(context, *kept)) is not None:
                return answer
        request = self._make_request(module, options)
        if isinstance(request, Answer):
            return request
        spent = 0.0
        if not self._is_always_full:
            made = self._ask(child, replace(request, is_full=False))
            spent += made.processor_seconds
            answer = self._look_up(context, made.refused, made.passed)
            if answer is not None:
                self._keep(key, made)
                return replace(answer, processor_seconds=spent)
        made = self._ask(child, request)
        spent += made.processor_seconds
        if made.refused:
            self._keep(key, made)
            return Answer(None, made.refused, processor_seconds=spent, is_full=True)
        reader = Reader(made.passed)
        costs, conflicts = reader.learn(made.generated)
        self.conflicts += conflicts + self._cache.learn(context, costs)
        self._keep(key, made)
        compiled = reader.read(costs)
        nanoseconds = estimate_time(compiled, self.target, self._factors)
        return Answer(nanoseconds, "", compiled.digest, spent, True, compiled)

    def _make_request(self, module: bytes, options: tuple[Option, ...]) -> Request | Answer:
        """Return what to ask a child; an Answer where it is known that it would be refused."""
        devices = find_devices(module)
        if isinstance(devices, str):
            return Answer(None, devices)
        limits = self._limits
        return Request(module, options, devices, seconds=limits.seconds, megabytes=limits.megabytes)

    def _ask(self, child: Child, request: Request) -> Compilation:
        try:
            reply = child.ask(request, request.seconds + GRACE_SECONDS)
        except ChildDiedError as error:
            return Compilation(refused=str(error), is_by_chance=True)
        return reply if isinstance(reply, Compilation) else Compilation(refused=reply.reason)

    def _keep(self, key: str, made: Compilation) -> None:
        """Keep a compilation, but for what a busy machine may have caused."""
        if not made.is_by_chance:
            self._cache.keep_compilation(key, made.refused, made.passed)

    def _look_up(self, context: str, refused: str, passed: bytes) -> Answer | None:
        """Return the answer if all kernels are known; None if one is new."""
        if refused:
            return Answer(None, refused)
        reader = Reader(passed)
        costs = self._cache.find(context, reader.keys)
        if len(costs) < len(reader.keys):
            return None
        compiled = reader.read(costs)
        nanoseconds = estimate_time(compiled, self.target, self._factors)
        return Answer(nanoseconds, "", compiled.digest, compiled=compiled)
