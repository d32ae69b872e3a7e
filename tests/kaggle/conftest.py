"""A place with a stand-in for Kaggle; and the long stories, several told at once.

A story is a submit that fails or is killed, and the one after it. Stories wait more than they
work, so all that a session asks for run in a few threads from the first test that looks at one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kaggle.place import Place, make_run
from tests.kaggle.server import KaggleServer

THREADS = 3


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with a run that can be sent, and a stand-in for Kaggle."""
    make_run(tmp_path / "run")
    server = KaggleServer()
    yield Place(tmp_path, server)
    server.stop()


@pytest.fixture(scope="session")
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """By the name of the test, the stories that this session asks for, all begun."""
    asked = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and "story" in item.fixturenames
    ]
    run = tmp_path_factory.mktemp("run") / "run"
    make_run(run)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="story")
    try:
        yield {
            item.nodeid: pool.submit(
                tell(item.function), tmp_path_factory.mktemp("story"), run, item.callspec.params
            )
            for item in asked
        }
    finally:
        pool.shutdown(cancel_futures=True)


def tell(test: Callable[..., None]) -> Callable[..., Any]:
    """The function beside the test that plays its story: `play`, of the same module."""
    play: Callable[..., Any] = test.__globals__["play"]
    return play


@pytest.fixture
def story(request: pytest.FixtureRequest, stories: dict[str, Future[Any]]) -> Any:
    """What happened in the story of this test."""
    return stories[request.node.nodeid].result()
