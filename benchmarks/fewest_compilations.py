"""Estimate many modules for a TPU, and compile as few of them in full as possible."""

from collections.abc import Sequence
from dataclasses import replace

from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.forking import Request
from solution.collecting.tpu.reading import Reader
from solution.programs.child import Child

Prepared = tuple[Request, str, str]  # a request, its context and its key, see Estimator._prepare


class PatientEstimator(Estimator):
    """An estimator that sees all modules before it compiles one."""

    def estimate_all(self, modules: Sequence[bytes], most_full: int | None = None) -> list[Answer]:
        """Return the answers for modules, in order; compile as few modules in full as possible.

        The passes over HLO run on all modules first. Then, until no kernel is new, the module with
        the most new kernels is chosen, and these are compiled alone; if that fails, the whole
        module is compiled. Each compilation is stored, so a second call resumes an interrupted one.

        Args:
            most_full: maximum number of modules whose kernels are compiled. If a module still has
                new kernels afterwards, its answer has no estimate and states how many are new.
        """
        child, answers = self._children[0], dict[int, Answer]()
        waiting: dict[int, Prepared] = {}
        for number, passed in enumerate(self._share(self._pass, modules)):
            if isinstance(passed, Answer):
                answers[number] = passed
            else:
                waiting[number] = passed
        count, programs = 0, dict[int, str]()
        while waiting:
            missing: dict[int, int] = {}
            next_number, next_reader = -1, None  # the module with the most new kernels
            for number, (_, context, key) in sorted(waiting.items()):
                reader = Reader((self._cache.find_compilation(key) or ("", b""))[1])
                answer = self._look_up(context, reader)
                if answer is None:
                    missing[number] = len(self._find_missing(context, reader))
                    programs[number] = reader.names.program
                    if next_reader is None or missing[number] > missing[next_number]:
                        next_number, next_reader = number, reader
                else:
                    answers[number] = answer
                    del waiting[number]
            if next_reader is None or count == most_full:
                break
            number = next_number
            count += 1
            request, context, _ = waiting[number]
            if not self._isolate(child, request, context, next_reader)[0]:
                answers[number] = self._compile_fully(child, *waiting.pop(number))
        for number in waiting:
            why = f"{missing[number]} of its kernels are not known"
            answers[number] = Answer(None, why, programs[number])
        return [answers[number] for number in sorted(answers)]

    def _pass(self, child: Child, module: bytes) -> Answer | Prepared:
        """Run the passes over HLO on a module and store their result, unless the cache already has
        the result or the module's answer."""
        prepared = self._prepare((module, (), None))
        if isinstance(prepared, Answer):
            return prepared
        request, _, key = prepared
        kept = self._cache.find_compilation(key)
        if kept is None or kept[0]:
            made = self._ask(child, replace(request, is_full=False))
            self._keep(key, made)
            if made.refused:
                return Answer(None, made.refused)
        return prepared
