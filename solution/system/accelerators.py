"""Find the GPUs of this machine with nvidia-smi (not torch), and describe how a run uses them."""

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from solution.system.errors import InputError

IN_KERNELS = "/opt/bin/nvidia-smi"  # path of nvidia-smi in Kaggle kernels, whose PATH lacks it
FIELDS = "name,memory.total,compute_cap"
HAS_BFLOAT16 = 8.0  # lowest CUDA compute capability that supports bfloat16
LONGEST_SECONDS = 20.0  # timeout of nvidia-smi
CORES_OF_A_FIT = 2  # CPU cores that prepare the training steps of one net on a GPU


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, memory (MiB) and CUDA compute capability, such as 8.0."""

    name: str
    megabytes: float
    capability: float


def find_gpus() -> list[Gpu]:
    """Return the GPUs that nvidia-smi lists; an empty list if there is no nvidia-smi. Raises
    InputError if nvidia-smi fails or its output cannot be parsed."""
    program = shutil.which("nvidia-smi") or IN_KERNELS
    if not Path(program).is_file():
        return []
    command = [program, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
        rows = [line.rsplit(",", 2) for line in done.stdout.splitlines() if line.strip()]
        return [Gpu(name.strip(), float(size), float(number)) for name, size, number in rows]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InputError(f"nvidia-smi does not answer as expected: {error}") from error


@cache
def find_smallest_memory() -> int:
    """Return the bytes of memory of the smallest GPU; 0 if there is no GPU or nvidia-smi fails. The
    result is cached."""
    with suppress(InputError):
        return int(min((gpu.megabytes * 2**20 for gpu in find_gpus()), default=0))
    return 0


def describe_accelerators(gpus: list[Gpu] | None = None) -> str:
    """Return a text for users: the GPUs and how a run uses them, or that nvidia-smi fails. By
    default, `gpus` are the GPUs that nvidia-smi lists."""
    try:
        gpus = find_gpus() if gpus is None else gpus
    except InputError as error:
        return str(error)
    if not gpus:
        words = "no GPU: nets are trained on the CPU, one on each core"
        if "TPU_ACCELERATOR_TYPE" in os.environ:  # set in Kaggle kernels with a TPU
            words += "; the TPU is not used, T4 x2 would be"
        return words
    names = [f"{gpu.name}, {gpu.megabytes / 1024:.0f} GB" for gpu in gpus]
    at_once = (
        f"nets are trained there, one for each {CORES_OF_A_FIT} cores of the CPU at once as far as "
        "memory goes"
    )
    if len(gpus) > 1:
        at_once += ", at least one on each"
    short = min(gpu.capability for gpu in gpus) >= HAS_BFLOAT16
    precision = "products in bfloat16" if short else "in float32, for it has no bfloat16"
    return f"{'; '.join(names)}: {at_once}, {precision}"
