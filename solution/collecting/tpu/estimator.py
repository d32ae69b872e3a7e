"""Estimate how long programs take on a TPU, by compiling them in child processes.

The passes over HLO are the first, short part of a compilation; they decide which kernels a program
has. Most configurations need only these passes, because the costs of their kernels are known from
earlier configurations. New kernels are compiled in a small module of their own, and their costs are
stored. If that fails, the program is compiled in full, and the costs of all its kernels are stored.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from solution.collecting.target import Target
from solution.collecting.tpu.canonical import hash_texts
from solution.collecting.tpu.compiled import CompiledProgram, Cost
from solution.collecting.tpu.devices import check_module
from solution.collecting.tpu.estimate import CHIPS, estimate_time
from solution.collecting.tpu.forking import DEFAULT_LIMITS, Compilation, Request, serve_tpu
from solution.collecting.tpu.isolating import isolate
from solution.collecting.tpu.kernels import KernelCache, find_cache_folder
from solution.collecting.tpu.libtpu import EntryLayouts, Option
from solution.collecting.tpu.reading import Reader
from solution.collecting.tpu.target import TpuTarget, find_libtpu_version
from solution.programs.child import Child, ChildDiedError, Limits
from solution.system.errors import InputError
from solution.system.scratch import ScratchFolder

# share of HBM; a program that needs more may not fit, so it is compiled in full to find out
FULL_MEMORY = 0.8
# if the share of new kernels is larger, compile in full, because compiling the new kernels alone
# would take about as long
MOST_NEW = 0.75
GRACE_SECONDS = 30.0  # extra seconds to wait for the child's report that it exceeded a time limit
Asked = tuple[bytes, Sequence[Option], EntryLayouts | None]  # module, options, entry layouts
Given = TypeVar("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """The estimate of a configuration, or why there is none."""

    nanoseconds: float | None  # estimate of one run; None if there is none
    refused: str = ""  # why there is no estimate
    program: str = ""  # hash of the compiled program; equal hashes mean equal programs
    processor_seconds: float = 0.0  # on this answer, in all processes; near 0 if it was cached
    passes_seconds: float = 0.0  # part of `processor_seconds`: the passes over HLO
    is_full: bool = False  # True: the program was compiled in full for this answer
    isolated: int = 0  # number of new kernels that were compiled alone
    compiled: CompiledProgram | None = None

    @property
    def is_out_of_memory(self) -> bool:
        """True if the program needs more memory than the chip has; `refused` states how much."""
        return self.refused.startswith("RESOURCE_EXHAUSTED")


class Estimator:
    """Child processes that compile for a target, and the cache of earlier compilations."""

    def __init__(
        self,
        target: Target,
        limits: Limits = DEFAULT_LIMITS,
        cache: Path | None = None,
        processes: int = 1,
        *,
        is_always_full: bool = False,
    ) -> None:
        """Store the settings; the child processes start at the first request.

        Args:
            target: a TPU.
            limits: time and memory of each compilation.
            cache: the folder of the cache; by default `kernels.find_cache_folder`.
            processes: number of parallel compilations in `estimate_many`.
            is_always_full: compile every program in full, even if its answer is in the cache.

        Raises InputError if the target is no TPU or this machine cannot compile for it.
        """
        if not isinstance(target, TpuTarget):
            raise InputError(f"{target.name}: expected a TPU; the CPU is timed, not estimated.")
        target.check()
        self.target = target
        self.conflicts = 0  # number of kernels for which two compilations gave different costs
        self._limits = limits
        self._is_always_full = is_always_full
        self._version = find_libtpu_version()
        self._cache = KernelCache(find_cache_folder() if cache is None else cache)
        self._folder = ScratchFolder()
        work: Any = partial(serve_tpu, target=target, folder=self._folder.path)
        self._children = [Child(limits, work=work) for _ in range(processes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes, close the cache and remove the temporary folder."""
        for child in self._children:
            child.close()
        self._cache.close()
        self._folder.remove()

    def estimate(
        self, module: bytes, options: Iterable[Option] = (), layouts: EntryLayouts | None = None
    ) -> Answer:
        """Return the estimate of a serialized module (HloModuleProto, or HloProto, which has one in
        it), compiled with these options of XLA. If the compiler fails, the answer states why.

        Args:
            layouts: layouts of the entry's parameters and results, see
                `devices.find_entry_layouts`; by default the chip's usual layouts for their sizes.

        Raises InputError if the compiler cannot be started.
        """
        return self._estimate(self._children[0], (module, tuple(options), layouts))

    def estimate_many(self, given: Iterable[Asked]) -> Iterator[Answer]:
        """Yield the answer for each (module, options, entry layouts), in order; compile in
        parallel."""
        return self._share(self._estimate, given)

    def _share(
        self, work: Callable[[Child, Given], Result], given: Iterable[Given]
    ) -> Iterator[Result]:
        """Yield `work(child, item)` for each item of `given`, in order; the children work in
        parallel, each on one item at a time."""
        idle: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            idle.put(child)

        def run(one: Given) -> Result:
            child = idle.get()
            try:
                return work(child, one)
            finally:
                idle.put(child)

        with ThreadPoolExecutor(len(self._children)) as pool:
            yield from pool.map(run, given)

    def _estimate(self, child: Child, asked: Asked) -> Answer:
        begin = time.thread_time()
        prepared = self._prepare(asked)
        answer = prepared if isinstance(prepared, Answer) else self._compile(child, *prepared)
        spent = answer.processor_seconds + time.thread_time() - begin
        return replace(answer, processor_seconds=spent)

    def _prepare(self, asked: Asked) -> Answer | tuple[Request, str, str]:
        """Return the answer for (module, options, entry layouts) if it is known without compiling.

        Otherwise return the request to compile it, its context (the hash of target, libtpu version
        and options) and its key (the hash of context, module and layouts).
        """
        module, options, layouts = asked
        checked = check_module(module)
        if isinstance(checked, str):
            return Answer(None, checked)
        context = hash_texts(self.target.name, self._version, sorted(options))
        key = hash_texts(context, checked.content, layouts)
        if not self._is_always_full:
            kept = self._cache.find_compilation(key)
            if kept is not None:
                refused, passed = kept
                if refused:
                    return Answer(None, refused)
                answer = self._look_up(context, Reader(passed))
                if answer is not None:
                    return answer
        request = Request(
            checked.module, tuple(options), checked.devices, layouts, limits=self._limits
        )
        return request, context, key

    def _compile(self, child: Child, request: Request, context: str, key: str) -> Answer:
        """Return the answer for a module that is not in the cache. It is compiled in full only if
        the passes over HLO and its new kernels, compiled alone, do not yield a final estimate."""
        spent = passes = 0.0
        if not self._is_always_full:
            made = self._ask(child, replace(request, is_full=False, is_paused=True))
            spent = passes = made.processor_seconds
            if made.refused:
                self._keep(key, made)
                return Answer(None, made.refused, processor_seconds=spent, passes_seconds=spent)
            reader = Reader(made.passed)
            answer, count = self._look_up(context, reader), 0
            if answer is None:
                count, seconds = self._isolate(child, request, context, reader)
                spent += seconds
                answer = self._look_up(context, reader) if count else None
            if answer is not None:
                self._keep(key, made)
                return replace(
                    answer, processor_seconds=spent, passes_seconds=passes, isolated=count
                )
        answer = self._compile_fully(child, request, context, key)
        spent += answer.processor_seconds
        return replace(answer, processor_seconds=spent, passes_seconds=passes)

    def _isolate(
        self, child: Child, request: Request, context: str, reader: Reader
    ) -> tuple[int, float]:
        """Compile a module's new kernels (kernels of unknown cost) alone, and store their costs.

        Args:
            reader: the module after the passes over HLO.

        Returns:
            (number of new kernels, processor seconds). The number is 0 if no costs were stored: no
            kernel is new, too many are, the module is for several devices, or compiling alone
            failed.
        """
        missing = self._find_missing(context, reader)
        is_few = len(missing) <= MOST_NEW * len(reader.keys)
        if not missing or not is_few or request.devices.count > 1:
            return 0, 0.0
        # kernels on another engine are not compiled, because the cost model has no cycles for them
        costs = dict.fromkeys(missing & reader.beside, Cost())
        alone, seconds = isolate(reader, missing - costs.keys()), 0.0
        if alone is None:
            return 0, seconds
        if alone.kernels:
            made = self._ask(
                child, replace(request, module=alone.module, layouts=None, is_optimised=True)
            )
            seconds, learned = made.processor_seconds, alone.read_costs(made.generated)
            if not learned:
                return 0, seconds
            costs |= learned
        self.conflicts += self._cache.learn(context, costs)
        return len(missing), seconds

    def _find_missing(self, context: str, reader: Reader) -> set[str]:
        """Return the canonical names of a module's kernels whose costs are not in the cache."""
        return reader.keys - self._cache.find(context, reader.keys).keys()

    def _compile_fully(self, child: Child, request: Request, context: str, key: str) -> Answer:
        made = self._ask(child, request)
        if made.refused:
            self._keep(key, made)
            return Answer(
                None, made.refused, processor_seconds=made.processor_seconds, is_full=True
            )
        answer = self._learn(context, key, made)
        return replace(answer, processor_seconds=made.processor_seconds)

    def _learn(self, context: str, key: str, made: Compilation) -> Answer:
        """Store the kernels' costs from a full compilation; return the answer for its module."""
        reader = Reader(made.passed)
        learned = reader.learn(made.generated)
        if learned.is_same:
            self.conflicts += learned.conflicts + self._cache.learn(context, learned.costs)
            self._keep(key, made)
        # full compilation changed the kernels that the passes over HLO made: read its own kernels
        else:
            reader = Reader(made.generated)
            learned = reader.learn(made.generated)
        compiled = reader.read(learned.costs)
        nanoseconds = estimate_time(compiled, self.target)
        return Answer(nanoseconds, "", compiled.digest, is_full=True, compiled=compiled)

    def _ask(self, child: Child, request: Request) -> Compilation:
        try:
            reply = child.ask(request, request.limits.seconds + GRACE_SECONDS)
        except ChildDiedError as error:
            return Compilation(refused=str(error), is_by_chance=True)
        return reply if isinstance(reply, Compilation) else Compilation(refused=reply.reason)

    def _keep(self, key: str, made: Compilation) -> None:
        """Store a compilation, unless it exceeded a limit, perhaps because the machine is busy."""
        if not made.is_by_chance:
            self._cache.keep_compilation(key, made.refused, made.passed)

    def _look_up(self, context: str, reader: Reader) -> Answer | None:
        """Return the answer if the costs of all kernels are in the cache, otherwise None.

        Also return None if the program nearly fills the chip's memory, because only the part of a
        full compilation after the passes checks whether the program fits.
        """
        costs = self._cache.find(context, reader.keys)
        if len(costs) < len(reader.keys):
            return None
        compiled = reader.read(costs)
        if compiled.memory_bytes > FULL_MEMORY * CHIPS[self.target.generation].gigabytes * 1e9:
            return None
        nanoseconds = estimate_time(compiled, self.target)
        return Answer(nanoseconds, "", compiled.digest, compiled=compiled)
