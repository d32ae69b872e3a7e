"""Compile options of a TPU that people tune by hand and whose effect estimates can show."""

from functools import cached_property

import numpy as np

from solution.collecting.options import OptionSpace
from solution.collecting.tpu.asking import ask
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    TPU_OPTION_CHOICES,
)
from solution.programs.compiler import Flags

# By option: its name in the compiler.
NAMES = {
    "tpu_scoped_vmem_kib": "xla_tpu_scoped_vmem_limit_kib",
    "tpu_dot_dot_fusion": "xla_tpu_dot_dot_fusion",
    "tpu_dot_dot_fusion_duplicated": "xla_tpu_dot_dot_fusion_duplicated",
}


class TpuOptionSpace(OptionSpace):
    """The space of a TPU's options: values (options,) are positions in TPU_OPTION_CHOICES."""

    options = TPU_OPTION_CHOICES
    option_names = tuple(TPU_OPTION_CHOICES)  # names in records

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """Return the unchanged program, and the compiler's flags."""
        return self.unasked, find_tpu_flags(values)

    @cached_property
    def unasked(self) -> bytes:
        """Return the module without layout constraints."""
        configurable = self._program.configurable
        unset = np.full((len(configurable), len(LAYOUT_TENSORS), MAX_RANK), LAYOUT_UNSET, np.int8)
        return ask(self._program.module, configurable, unset)


def find_tpu_flags(values: np.ndarray) -> Flags:
    """Return the compiler's flags for values (options,)."""
    told: list[tuple[str, bool | int | str]] = []
    for (name, choices), value in zip(TPU_OPTION_CHOICES.items(), values.tolist(), strict=True):
        if value:
            told.append((NAMES[name], read_choice(choices[value])))
    return Flags(tuple(told))


def read_choice(choice: str) -> bool | int | str:
    """Return a choice as the compiler's value: True or False for on and off, an integer, or a
    word."""
    if choice in ("on", "off"):
        return choice == "on"
    return int(choice) if choice.isdigit() else choice
