"""A TPU as a target of collection: labels are estimates of its compiler, libtpu.

The compiler runs without a TPU. Estimates are no measurements, and the labels state that they are
estimates.
"""

import platform
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from solution.collecting.target import CPU, Target
from solution.system.errors import InputError
from solution.system.wording import how_to_install

if TYPE_CHECKING:
    import polars as pl

    from solution.collecting.program_space import ProgramSpace
    from solution.collecting.timing import Outcome
    from solution.collecting.tpu.labelling import EstimatingWorkers
    from solution.programs.child import Limits
    from solution.programs.program import Program

PREFIX = "tpu:"  # prefix of the names of all TPU targets
GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x")
# {generation: names of its devices in jax}; the first is the one that libtpu gives
DEVICES = {
    "v2": ("TPU v2",),
    "v3": ("TPU v3",),
    "v4": ("TPU v4",),
    "v5e": ("TPU v5 lite", "TPU v5e"),
    "v5p": ("TPU v5", "TPU v5p"),
    "v6e": ("TPU v6 lite", "TPU v6e"),
    "v7x": ("TPU7x", "TPU7"),
}
EXTRA = "tpu"  # the extra of this project's package that installs libtpu


class TpuTarget(Target):
    """A generation of TPUs, such as tpu:v5e."""

    NAMES: ClassVar[tuple[str, ...]] = tuple(f"{PREFIX}{name}" for name in GENERATIONS)
    platform: ClassVar[str] = "tpu"
    # Default limits, higher than a CPU's because the TPU's compiler needs more time and memory.
    seconds: ClassVar[float] = 600
    megabytes: ClassVar[int] = 8192
    minutes: ClassVar[float] = 20

    @property
    def generation(self) -> str:
        """Return the TPU's generation, such as v5e."""
        return self.name.removeprefix(PREFIX)

    def check(self, kind: str = "") -> None:
        """Raise InputError if libtpu is not installed or cannot run on this machine.

        libtpu is not loaded for this. Also raise InputError if `kind` is "tiles", because the
        compiler takes no tile sizes.
        """
        if kind == "tiles":
            raise InputError(
                f"{self.name}: a TPU's compiler chooses its tiles itself and takes none, so there "
                "is nothing to vary. Take its layouts or options, or tiles with --target cpu."
            )
        machine = platform.machine()
        if sys.platform != "linux" or machine not in ("x86_64", "AMD64"):
            raise InputError(
                f"{self.name}: the TPU's compiler (libtpu) runs on Linux with an x86-64 processor "
                f"only; this machine is {platform.system()} on {machine}. Collect there, or with "
                f"`{CPU}`."
            )
        if find_spec("jax") is None or find_spec("libtpu") is None:
            raise InputError(
                f"{self.name}: the TPU's compiler (libtpu) is not installed. "
                f"{how_to_install(EXTRA)}."
            )

    def make_space(
        self, program: "Program", kind: str, *, varies_fastest: bool = False
    ) -> "ProgramSpace":
        from solution.collecting.tpu.space import make_tpu_space

        self.check(kind)
        return make_tpu_space(program, kind, varies_fastest=varies_fastest)

    @property
    def schema(self) -> "pl.Schema":
        from solution.collecting.tpu.labelling import ESTIMATES

        return ESTIMATES

    def summarise(
        self, sound: "pl.DataFrame", repeats: "pl.DataFrame", state: Mapping[str, Any]
    ) -> "Outcome":
        from solution.collecting.tpu.labelling import read_estimates

        return read_estimates(sound)

    def open_workers(
        self, limits: "Limits", processes: int | None = None
    ) -> "AbstractContextManager[EstimatingWorkers]":
        from solution.collecting.tpu.labelling import open_estimating
        from solution.programs.child import list_cores

        return open_estimating(self, limits, processes or max(1, len(list_cores())))


def find_libtpu_version() -> str:
    """Return the version of the installed libtpu; programs compile differently in other versions.
    Raises InputError if libtpu is not installed."""
    try:
        return version("libtpu")
    except PackageNotFoundError as error:
        raise InputError(
            f"The TPU's compiler (libtpu) is not installed. {how_to_install(EXTRA)}."
        ) from error
