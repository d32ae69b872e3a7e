"""What a message says that has to be done can be done."""

import re
import tomllib

import pytest

from solution.system.wording import how_to_install
from tests.conftest import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROOMS = ("solution", "submissions", "notebooks", "docs")


def test_an_extra_is_installed_from_the_folder_and_is_there() -> None:
    told = how_to_install("collect")
    assert told == 'In the project\'s folder, pip install -c constraints.txt -e ".[collect]"'
    assert (REPOSITORY / "constraints.txt").is_file()
    named = {
        extra
        for path in (REPOSITORY / "solution").rglob("*.py")
        for extra in re.findall(r"how_to_install\([\"'](.+?)[\"']\)", path.read_text("utf-8"))
    }
    assert {"collect", "collect-torch", "cluster"} <= named
    assert named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_is_told_to_install_from_an_index_that_has_it_not(room: str) -> None:
    told = [
        str(path)
        for path in (REPOSITORY / room).rglob("*")
        if path.suffix in (".py", ".md", ".ipynb")
        and "pip install 'fast-or-slow" in path.read_text(encoding="utf-8")
    ]
    assert told == []
