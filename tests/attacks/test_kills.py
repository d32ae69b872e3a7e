"""A fit that is killed while its checkpoint is on the disk goes on from it, and ends the same."""

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.attacks.making import make_store
from tests.attacks.stories import (
    begin,
    describe_run,
    find_checkpoints,
    kill,
    list_results,
    wait_until,
)
from tests.processes import TRAINING

KILLS = 20


@pytest.mark.slow
def test_kills_with_a_checkpoint_on_the_disk(tmp_path: Path) -> None:
    store, generator = make_store(tmp_path).folder, random.Random(0)
    done = TRAINING.run(*describe_run(store, tmp_path / "whole"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = list_results(tmp_path / "whole")
    run, kills, ended = tmp_path / "killed", 0, 0
    while kills < KILLS or ended == 0:
        program = begin(*describe_run(store, run), cwd=tmp_path)
        before = find_checkpoints(run)
        may_be_killed = kills < KILLS and wait_until(
            lambda before=before: find_checkpoints(run).items() - before.items(),  # type: ignore[misc]
            program,
        )
        if may_be_killed:
            time.sleep(generator.random() * 0.03)
            kill(program)
            kills += bool(find_checkpoints(run))
            continue
        assert program.wait(120) == 0, program.communicate()[1]
        assert list_results(run) == expected, f"after {kills} kills"
        ended += 1
        if kills < KILLS:
            shutil.rmtree(run)
    assert len(expected) > 6
