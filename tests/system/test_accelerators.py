"""What is said of the GPUs that nvidia-smi lists: a script stands in for it."""

from pathlib import Path

import pytest

from solution.system.accelerators import (
    Gpu,
    describe_accelerators,
    find_gpus,
    find_smallest_memory,
)
from solution.system.errors import InputError


def stand_in(folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{lines}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_two_t4_train_a_net_each_at_least_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "Tesla T4, 15360, 7.5\\nTesla T4, 15360, 7.5\\n", monkeypatch)
    gpus = find_gpus()
    assert gpus == [Gpu("Tesla T4", 15360, 7.5)] * 2
    words = describe_accelerators(gpus)
    assert words.startswith(
        "Tesla T4, 15 GB; Tesla T4, 15 GB: nets are trained there, one for each"
    )
    assert "at least" in words
    assert "float32" in words


def test_an_h100_trains_in_bfloat16() -> None:
    words = describe_accelerators([Gpu("NVIDIA H100 80GB HBM3", 81559, 9.0)])
    assert words.endswith(
        "80 GB: nets are trained there, one for each 2 cores of the CPU at once as far as memory "
        "goes, products in bfloat16"
    )


def test_the_smallest_gpu_says_how_much_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "Large, 81559, 9.0\\nSmall, 1024, 7.5\\n", monkeypatch)
    assert find_smallest_memory.__wrapped__() == 2**30
    stand_in(tmp_path, "NVIDIA-SMI has failed\\n", monkeypatch)
    assert find_smallest_memory.__wrapped__() == 0


def test_without_a_gpu_the_cpu_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    assert describe_accelerators([]) == "no GPU: nets are trained on the CPU, one on each core"
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5e-8")
    assert "TPU is not" in describe_accelerators([])


@pytest.mark.parametrize("lines", ["NVIDIA-SMI has failed\\n", "a, b, c\\n"])
def test_a_driver_that_fails_is_said(
    lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, lines, monkeypatch)
    with pytest.raises(InputError, match="nvidia-smi"):
        find_gpus()
