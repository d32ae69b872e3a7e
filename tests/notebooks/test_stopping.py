"""`fastslow kernels build` that is stopped ends its kernel, and writes no notebook."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from submissions.kernels.notebooks import find_notebook
from tests.processes import FASTSLOW

BUILT = find_notebook("1").built


@pytest.mark.parametrize(
    ("number", "code", "words"), [(signal.SIGINT, 130, "Stopped."), (signal.SIGTERM, 143, "")]
)
def test_a_build_is_stopped(number: signal.Signals, code: int, words: str, tmp_path: Path) -> None:
    before = BUILT.read_bytes()
    program = FASTSLOW.start("kernels", "build", "1", cwd=tmp_path, group=0)
    began: list[psutil.Process] = []
    while not began and program.poll() is None:
        began = psutil.Process(program.pid).children(recursive=True)
        time.sleep(0.05)
    time.sleep(2)  # the kernel has begun, and a cell runs or will soon
    began = psutil.Process(program.pid).children(recursive=True)
    assert began
    program.send_signal(number)
    printed, errors = program.communicate(60)
    assert (program.returncode, printed.strip(), errors.strip()) == (code, "", words)
    _, left = psutil.wait_procs(began, timeout=10)
    assert not left
    assert BUILT.read_bytes() == before
