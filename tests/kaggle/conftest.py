"""A user's folder with a stand-in for Kaggle; and the long stories, several told at once.

A story is a submit that fails or is killed, and the one after it. Stories wait more than they
work, so all of a group run in a few threads from the first test that looks at one of them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import find_group
from tests.kaggle.desk import Desk, make_run
from tests.kaggle.server import KaggleServer

THREADS = 6


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A folder with a run that can be sent, and a stand-in for Kaggle."""
    make_run(tmp_path / "run")
    server = KaggleServer()
    yield Desk(tmp_path, server)
    server.stop()


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
        # What plays the story is `play`, of the same module as the test.
        play: Callable[..., Any] = item.function.__globals__["play"]
        return self.pool.submit(play, self.folders.mktemp("story"), self.run, item.callspec.params)


@pytest.fixture(scope="session")
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stories]:
    """All the stories that this session may ask for."""
    items = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and "story" in item.fixturenames
    ]
    run = tmp_path_factory.mktemp("run") / "run"
    make_run(run)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="story")
    try:
        yield Stories(pool, tmp_path_factory, items, run)
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def story(request: pytest.FixtureRequest, stories: Stories) -> Any:
    """What happened in the story of this test."""
    return stories.tell(request.node.nodeid)
