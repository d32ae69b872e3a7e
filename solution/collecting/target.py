"""The machine that a collection's labels are for: this CPU, timed, or a TPU, estimated.

A TPU's labels are estimates of its compiler, which libtpu contains and which needs no TPU
(solution/collecting/tpu). Only a clock measures, and only the CPU is timed here.
"""

import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from solution.system.errors import InputError
from solution.system.wording import how_to_install

CPU = "cpu"
TPU = "tpu:"  # prefix of all TPUs' names
GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x")
NAMES = (CPU, *(f"{TPU}{generation}" for generation in GENERATIONS))
EXTRA = "tpu"  # the optional dependencies of this project that install libtpu


@dataclass(frozen=True)
class Target:
    """The kind of machine that a program is compiled for."""

    name: str = CPU  # one of NAMES

    @property
    def is_estimated(self) -> bool:
        """True if labels are the compiler's estimates; False if a clock measures them."""
        return self.name != CPU

    @property
    def generation(self) -> str:
        """The TPU's generation, such as v5e; empty for the CPU."""
        return self.name.removeprefix(TPU) if self.is_estimated else ""


def parse_target(text: str) -> Target:
    """Return the target with this name: cpu, tpu:v2, tpu:v3 and so on.

    Raises InputError if there is none.
    """
    if text not in NAMES:
        raise InputError(f"{text}: expected a target, one of {', '.join(NAMES)}. Name one of them.")
    return Target(text)


def check_target(target: Target) -> None:
    """Raise InputError if this machine cannot compile for the target; libtpu is not loaded."""
    if not target.is_estimated:
        return
    machine = platform.machine()
    if sys.platform != "linux" or machine not in ("x86_64", "AMD64"):
        raise InputError(
            f"{target.name}: the TPU's compiler (libtpu) runs on Linux with an x86-64 processor "
            f"only; this machine is {platform.system()} on {machine}. Collect there, or with "
            f"`{CPU}`."
        )
    if find_spec("jax") is None or find_spec("libtpu") is None:
        raise InputError(
            f"{target.name}: the TPU's compiler (libtpu) is not installed. {how_to_install(EXTRA)}."
        )


def find_libtpu_version() -> str:
    """Return the version of the installed libtpu, which decides what is compiled.

    Raises InputError if it is not installed.
    """
    try:
        return version("libtpu")
    except PackageNotFoundError as error:
        raise InputError(
            f"The TPU's compiler (libtpu) is not installed. {how_to_install(EXTRA)}."
        ) from error
