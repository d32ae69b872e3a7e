"""A submit that is killed at any moment; the same command again ends with one submission."""

import os
import random
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kaggle.desk import Desk, Done
from tests.kaggle.server import KaggleServer
from tests.kaggle.test_fault_matrix import assert_made_once

KILLS = 8
CALLS = 6  # of a submit, up to the first look for its score
LONGEST_STEP = 0.5  # seconds between two calls, and between the last one and the end


@dataclass(frozen=True)
class Story:
    """What happened to a submit."""

    desk: Desk
    moment: str
    exit_code: int  # of the one that was killed
    second: Done


def play(folder: Path, run: Path, params: dict[str, Any]) -> Story:
    """Kill a submit at a random moment after a random call; every other time all it started too."""
    chance = random.Random(params["seed"])
    calls, delay = chance.randint(0, CALLS), chance.uniform(0, LONGEST_STEP)
    shutil.copytree(run, folder / "run")
    server = KaggleServer()
    try:
        desk = Desk(folder, server)
        server.world.pending = 10**9  # it waits for its score until it is killed
        running = desk.start(*desk.submit_arguments())
        while len(server.world.calls) < calls and not running.ends_within(0.002):
            pass
        running.ends_within(delay)
        (os.killpg if params["seed"] % 2 else os.kill)(running.number, signal.SIGKILL)
        killed = running.finish()
        server.world.pending = 0
        for row in server.world.submissions:
            row["pending"] = 0
        moment = f"{delay:.3f} s after call {calls}"
        return Story(desk, moment, killed.code, desk.submit())
    finally:
        server.stop()


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_kill_at_any_moment(seed: int, story: Story) -> None:
    assert story.exit_code == -signal.SIGKILL, story.moment
    assert story.second.code == 0, f"{story.moment}: {story.second.words}"
    assert_made_once(story.desk)
    assert not list(story.desk.folder.rglob(".partial-*")), story.moment
