"""A submit that is killed at any moment; the same command again ends with one submission."""

import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kaggle_server import KaggleServer
from tests.submitting import Done, Place, make_run
from tests.test_fault_matrix import THREADS, assert_made_once

KILLS = 20
CALLS = 6  # of a whole submit
LONGEST_STEP = 0.5  # seconds between two calls


def kill_and_repeat(folder: Path, run: Path, seed: int) -> tuple[Place, Done, str]:
    """Kill a submit at a random moment after a random call; every other time all it started too."""
    chance = random.Random(seed)
    calls, delay = chance.randint(0, CALLS), chance.uniform(0, LONGEST_STEP)
    story = f"seed {seed}: killed {delay:.3f} s after call {calls}"
    shutil.copytree(run, folder / "run")
    server = KaggleServer()
    try:
        place = Place(folder, server)
        process, output = place.start(*place.submit_arguments())
        while len(server.world.calls) < calls and process.is_alive():
            time.sleep(0.002)
        process.join(delay)
        if process.is_alive() and process.pid is not None:
            whole_group = seed % 2 == 1 and (output / "out").exists()
            (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
        process.join()
        story += f", exit code {process.exitcode}"
        return place, place.submit(), story
    finally:
        server.stop()


def test_a_kill_at_any_moment(tmp_path_factory, tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [
            pool.submit(kill_and_repeat, tmp_path_factory.mktemp("kill"), tmp_path / "run", seed)
            for seed in range(KILLS)
        ]
    killed = 0
    for place, second, story in (future.result() for future in futures):
        killed += "exit code -9" in story
        known = "the same file was submitted" in second.words
        assert second.code == (2 if known else 0), f"{story}: {second.words}"
        assert_made_once(place)
        leftovers = list((place.folder / "submissions").rglob(".partial-*"))
        assert not leftovers, story
    assert killed > KILLS // 2
