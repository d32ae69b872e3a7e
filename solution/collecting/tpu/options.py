"""Compile options of a TPU that people tune by hand, as far as estimates show what they do."""

from functools import cached_property

import numpy as np

from solution.collecting.compiler import Flags
from solution.collecting.options import OptionSpace
from solution.collecting.tpu.asking import ask
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    TPU_OPTION_CHOICES,
)

# The compiler's name of each option, and what each choice tells it; the default tells nothing.
NAMES = {
    "tpu_scoped_vmem_kib": "xla_tpu_scoped_vmem_limit_kib",
    "tpu_dot_dot_fusion": "xla_tpu_dot_dot_fusion",
    "tpu_dot_dot_fusion_duplicated": "xla_tpu_dot_dot_fusion_duplicated",
}


class TpuOptionSpace(OptionSpace):
    """Choices of the options: values (options,), positions in TPU_OPTION_CHOICES."""

    options = TPU_OPTION_CHOICES
    option_names = tuple(TPU_OPTION_CHOICES)  # as records name them

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """The program as it is, and what the compiler is told."""
        return self.unasked, find_tpu_flags(values)

    @cached_property
    def unasked(self) -> bytes:
        """The module, without any layout that is asked for."""
        configurable = self._program.configurable
        unset = np.full((len(configurable), len(LAYOUT_TENSORS), MAX_RANK), LAYOUT_UNSET, np.int8)
        return ask(self._program.module, configurable, unset)


def find_tpu_flags(values: np.ndarray) -> Flags:
    """Return what the compiler is told for choices (options,)."""
    told: list[tuple[str, bool | int | str]] = []
    for (name, choices), value in zip(TPU_OPTION_CHOICES.items(), values.tolist(), strict=True):
        if value:
            told.append((NAMES[name], read_choice(choices[value])))
    return Flags(tuple(told))


def read_choice(choice: str) -> bool | int | str:
    """Return a choice as the compiler takes it: on and off, a whole number, or a word."""
    if choice in ("on", "off"):
        return choice == "on"
    return int(choice) if choice.isdigit() else choice
