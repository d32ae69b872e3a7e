"""Targets by name, and machines that cannot compile for them."""

import pickle
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solution.collecting.target import list_names, parse_target
from solution.system.errors import InputError

REPOSITORY = Path(__file__).parent.parent.parent
CHECK = """
from solution.collecting.target import parse_target
from solution.system.errors import InputError
try:
    parse_target("tpu:v3").check()
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("name", list_names())
def test_each_target_is_found_by_its_name(name: str) -> None:
    target = parse_target(name)
    assert target.name == name
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize("name", ["tpu", "tpu:", "tpu:v9", "gpu", "", "v3", "tpu:V3"])
def test_a_wrong_name_lists_the_targets(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(name)
    assert all(known in str(caught.value) for known in list_names())


def test_without_the_extra_the_message_names_it() -> None:
    message = _check(sys.executable, "-S")  # installed packages are invisible
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        assert ".[tpu]" in message
    assert "tpu:v3" in message
    assert len(message.splitlines()) == 1


@pytest.mark.skipif(shutil.which("setarch") is None, reason="setarch (util-linux) is not here")
def test_on_another_processor_the_message_names_it() -> None:
    message = _check("setarch", "i686", sys.executable, "-S")
    assert "i686" in message
    assert "x86-64" in message


def _check(*command: str) -> str:
    done = subprocess.run(
        [*command, "-c", CHECK], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
