"""A user's folder with a stand-in for Kaggle; and the long stories, several told at once.

A story is a submit that fails or is killed, and the one after it. Stories wait more than they
work, so all of a group run in a few threads from the first test that looks at one of them.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from submissions.kernels.installing import MANIFEST, SCRIPT
from submissions.kernels.packaging import name_commit
from submissions.provenance import read_tree
from tests.conftest import find_group
from tests.kaggle.desk import Desk, make_run, open_desk

THREADS = 6
WHEEL = "fast_or_slow-0.1.0-py3-none-any.whl"


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that can be sent; not to be changed."""
    return make_run(tmp_path_factory.mktemp("run") / "run").folder


@pytest.fixture
def desk(tmp_path: Path, made_run: Path) -> Iterator[Desk]:
    """A folder with a copy of that run, and a stand-in for Kaggle."""
    with open_desk(tmp_path, made_run) as opened:
        yield opened


@pytest.fixture
def shop(desk: Desk, tmp_path: Path) -> Desk:
    """A desk with a package of the code as it is now, of one wheel that nobody installs."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL).write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    commit = name_commit(read_tree())
    manifest = {"commit": commit, "python": "3.12", "wheels": {WHEEL: digest}}
    (wheels / MANIFEST).write_text(json.dumps({"project": "fast-or-slow", **manifest}))
    (wheels / SCRIPT).write_text("# installs\n")
    desk.more |= {"FASTSLOW_WHEELS": str(wheels), "FASTSLOW_TRIES": "1"}
    return desk


@dataclass
class Stories:
    """Those of this session, by the name of the test, begun group by group."""

    pool: ThreadPoolExecutor
    folders: pytest.TempPathFactory
    items: list[pytest.Function]
    run: Path
    begun: dict[str, Future[Any]] = field(default_factory=dict)

    def tell(self, name: str) -> Any:
        """What happened in the story of this test; begins all of its group."""
        if name not in self.begun:
            group = next(find_group(item) for item in self.items if item.nodeid == name)
            for item in self.items:
                if find_group(item) == group:
                    self.begun[item.nodeid] = self._begin(item)
        return self.begun[name].result()

    def _begin(self, item: pytest.Function) -> Future[Any]:
        # What plays the story is called as the test, in the same module.
        play: Callable[..., Any] = item.function.__globals__[f"play_{item.originalname[5:]}"]
        return self.pool.submit(play, self.folders.mktemp("story"), self.run, item.callspec.params)


@pytest.fixture(scope="session")
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, made_run: Path
) -> Iterator[Stories]:
    """All the stories that this session may ask for."""
    items = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and "story" in item.fixturenames
    ]
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="story")
    try:
        yield Stories(pool, tmp_path_factory, items, made_run)
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def story(request: pytest.FixtureRequest, stories: Stories) -> Any:
    """What happened in the story of this test."""
    return stories.tell(request.node.nodeid)
