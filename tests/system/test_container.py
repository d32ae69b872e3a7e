"""What is left of the memory of a container, by the files that Linux shows of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from solution.system import processes
from solution.system.accelerators import Gpu, describe_accelerators, find_gpus, find_smallest_memory
from solution.system.errors import InputError
from solution.system.memory import memory_left

MB = 1_000_000
# By version: the files of the limit and of what is taken, a prefix, and no limit.
FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_", 9223372036854771712),
         2: ("memory.max", "memory.current", "", "max")}  # fmt: skip


def make_group(folder: Path, version: int, limit: int | None, taken: int, files: int = 0) -> None:
    """The files of one group; half of the files that were read have been used twice."""
    folder.mkdir(parents=True, exist_ok=True)
    name, usage, total, none = FILES[version]
    (folder / name).write_text(f"{none if limit is None else limit}\n", encoding="utf-8")
    (folder / usage).write_text(f"{taken}\n", encoding="utf-8")
    lines = [f"{total}{kind}_file {files // 2}" for kind in ("active", "inactive")]
    lines = ["anon 7", "active_file 1", *lines, f"{total}inactive_anon {taken}"]
    (folder / "memory.stat").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_membership(folder: Path, version: int, group: str) -> Path:
    file = folder / "membership"
    line = f"0::{group}" if version == 2 else f"4:cpu,memory:{group}"
    file.write_text(f"9:name=systemd:/elsewhere\n1:cpuset:/\n{line}\n", encoding="utf-8")
    return file


def mounted(groups: Path, version: int) -> Path:
    return groups if version == 2 else groups / "memory"


@pytest.mark.parametrize("version", [1, 2])
def test_it_is_the_limit_less_what_is_taken_but_for_files(tmp_path: Path, version: int) -> None:
    membership = make_membership(tmp_path, version, "/docker/4f1")
    for limit, taken, files, left in (
        (16_000, 10_000, 0, 6_000),  # not all 16 GB
        (16_000, 10_000, 3_000, 9_000),  # files are given up when needed
        (1_000, 1_200, 0, 0),  # over the limit for a moment
        (1_000, 100, 200, 1_000),  # read at two moments
    ):
        make_group(mounted(tmp_path, version), version, limit * MB, taken * MB, files * MB)
        assert memory_left(tmp_path, membership) == left * MB
    make_group(mounted(tmp_path, version), version, None, 100 * MB)
    found = memory_left(tmp_path, membership)
    assert found is None or found > 1 << 60


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_group_around_the_process_counts(tmp_path: Path, version: int) -> None:
    root, membership = mounted(tmp_path, version), make_membership(tmp_path, version, "/pod/own")
    make_group(root / "pod" / "own", version, None, 100 * MB)
    make_group(root / "pod", version, 4_000 * MB, 3_000 * MB)  # others in it take most
    make_group(root / "other", version, 10 * MB, 0)
    assert memory_left(tmp_path, membership) == 1_000 * MB
    make_group(root / "pod" / "own", version, 500 * MB, 100 * MB)
    assert memory_left(tmp_path, membership) == 400 * MB


def test_without_groups_nothing_is_bounded_and_a_limit_alone_counts(tmp_path: Path) -> None:
    assert memory_left(tmp_path, tmp_path / "none") is None
    assert memory_left(tmp_path, make_membership(tmp_path, 2, "/")) is None
    (tmp_path / "memory.max").write_text("1000000", encoding="utf-8")
    assert memory_left(tmp_path, make_membership(tmp_path, 2, "/")) == MB


def test_a_container_may_leave_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_group(tmp_path, 2, 16_000 * MB, 15_000 * MB)
    membership = make_membership(tmp_path, 2, "/")
    monkeypatch.setattr(processes, "memory_left", lambda: memory_left(tmp_path, membership))
    assert processes.available_memory() == 1_000 * MB


LARGE = """
import solution
import torch

tensor = torch.ones(32 << 20)  # 128 MB
for line in open("/proc/self/smaps_rollup"):
    if line.startswith("AnonHugePages"):
        print(int(line.split()[1]) >> 10)
"""
GIVEN = "import os, solution; print(os.environ['THP_MEM_ALLOC_ENABLE'])"
CHOICES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not CHOICES.is_file() or "[never]" in CHOICES.read_text(), reason="no large pages here"
)
def test_large_tensors_lie_in_large_pages_unless_the_user_says_otherwise() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    for code, change in ((LARGE, {}), (GIVEN, {"THP_MEM_ALLOC_ENABLE": "0"})):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=environment | change,
        )  # fmt: skip
        assert int(done.stdout) > 100 if code == LARGE else done.stdout == "0\n"


def stand_in(folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{lines}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_two_t4_train_a_net_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "Tesla T4, 15360, 7.5\\nTesla T4, 15360, 7.5\\n", monkeypatch)
    gpus = find_gpus()
    assert gpus == [Gpu("Tesla T4", 15360, 7.5)] * 2
    words = describe_accelerators(gpus)
    assert words.count("Tesla T4, 15 GB") == 2 and "at least" in words and "float32" in words
    assert "bfloat16" in describe_accelerators([Gpu("NVIDIA H100 80GB HBM3", 81559, 9.0)])


def test_the_smallest_gpu_says_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "Large, 81559, 9.0\\nSmall, 1024, 7.5\\n", monkeypatch)
    assert find_smallest_memory.__wrapped__() == 2**30
    for failure in ("NVIDIA-SMI has failed\\n", "a, b, c\\n"):
        stand_in(tmp_path, failure, monkeypatch)
        assert find_smallest_memory.__wrapped__() == 0
        with pytest.raises(InputError, match="nvidia-smi"):
            find_gpus()


def test_without_a_gpu_the_cpu_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    assert describe_accelerators([]) == "no GPU: nets are trained on the CPU, one on each core"
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5e-8")
    assert "TPU is" in describe_accelerators([])
