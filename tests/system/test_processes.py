"""A script that starts processes is run once, however it is given to Python."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from solution.system.processes import interrupted_later
from tests.serving.test_reading import TEXT

STARTS = """
print("the script runs", flush=True)
from solution.system.processes import start_child
child = start_child(print, "the child runs")
child.join()
print("it ended with", child.exitcode, __name__, flush=True)
"""
RANKS = """
print("the script runs", flush=True)
from solution import load_bundle
print(load_bundle().rank("product.hlo").order[0] >= 0, flush=True)
"""


def run_script(text: str, way: str, folder: Path) -> list[str]:
    """The lines that a script prints, given as a file, as a module or through stdin."""
    (folder / "mine.py").write_text(text, encoding="utf-8")
    words = {"file": ["mine.py"], "module": ["-m", "mine"], "stdin": []}[way]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300,
        input=text if way == "stdin" else None,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("way", ["file", "module", "stdin"])
def test_a_child_does_not_run_the_script_again(way: str, tmp_path: Path) -> None:
    lines = run_script(STARTS, way, tmp_path)
    assert lines == ["the script runs", "the child runs", "it ended with 0 __main__"]


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_script_ranks_a_text_that_a_child_reads(way: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "product.hlo").write_text(TEXT, encoding="utf-8")
    assert run_script(RANKS, way, tmp_path) == ["the script runs", "True"]


INTERRUPTED = """
import signal, sys
from solution.system.processes import STACK, fork_server, open_pool
def nothing(*_):
    pass
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
    try:
        with open_pool(1, nothing, context=fork_server(STACK)) as pool:
            print("begun", flush=True)
            pool.submit(abs, 1).result()
    except KeyboardInterrupt:
        sys.exit(130)
"""
INTERRUPTED_LATER = INTERRUPTED.replace(
    "            pool.submit(abs, 1).result()\n",
    "            with interrupted_later():\n                pool.submit(abs, 1)\n",
).replace("open_pool\n", "interrupted_later, open_pool\n")


SLOW = """
import multiprocessing, time
if multiprocessing.current_process().name != "MainProcess":
    print("importing", flush=True)
    time.sleep(1)
def wait():
    time.sleep(60)
"""
INTERRUPTED_CHILD = """
import signal, sys, time
import slow
from solution.system.processes import SPAWN, start_child
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    start_child(slow.wait, context=SPAWN).join()
except KeyboardInterrupt:
    time.sleep(2)  # the child's import ends before this
    sys.exit(130)
"""


@pytest.mark.parametrize(
    ("script", "begun", "seconds"),
    [
        (INTERRUPTED, "begun", 0.5),
        (INTERRUPTED_LATER, "begun", 0.5),
        (INTERRUPTED_CHILD, "importing", 0),
    ],
    ids=["a server", "a server, later", "a child"],
)
def test_ctrl_c_says_nothing(script: str, begun: str, seconds: float, tmp_path: Path) -> None:
    """While a server or a child imports; a server takes three seconds."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == f"{begun}\n"
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")


def test_ctrl_c_is_answered_when_processes_are_started() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupted_later():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started")
    assert done == ["started"]
    # nor is it lost if the same Ctrl-C ends the server of processes, so that none can be started
    with pytest.raises(KeyboardInterrupt), interrupted_later():
        os.kill(os.getpid(), signal.SIGINT)
        raise BrokenPipeError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
