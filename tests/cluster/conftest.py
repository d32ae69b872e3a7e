"""A real Ray with several nodes on this machine, and a bucket beside it."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.training.executors.cluster import RayExecutor
from solution.training.watch import Watch
from tests.cluster.work import Watched
from tests.notebooks.sandbox import choose_files
from tests.processes import RAY

pytest.importorskip("ray")

# Alone in its cluster; a node that is gone is noticed at once.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}


@contextmanager
def open_cluster(nodes: int, head_seconds: int = 60) -> Iterator[Any]:
    """A head that does no work, and nodes of a core each.

    Args:
        head_seconds: after which a head that does not answer is lost.
    """
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(SETTINGS, RAY_gcs_rpc_server_reconnect_timeout_s=str(head_seconds))
    head = {
        "num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20,
        # It adds no nodes by itself, and nobody reads here what workers print.
        "no_monitor": True, "include_log_monitor": False,
    }  # fmt: skip
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node = partial(begin_forks, cluster.add_node)
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def begin_forks(begin: Callable[..., Any], **settings: Any) -> Any:
    """Begin a node that begins its workers soon: where Ray calls Python, they are forked."""
    python, sys.executable = sys.executable, str(RAY.stand_in)
    try:
        return begin(**settings)
    finally:
        sys.executable = python


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Of the sample every sixth kernel: what is trained here is trained here and there."""
    return prepare_store(choose_files(), tmp_path_factory.mktemp("store"), Preparation())


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes, for tests that leave them as they are."""
    with open_cluster(2) as found:
        yield found


@pytest.fixture
def nodes(cluster: Any) -> RayExecutor:
    return RayExecutor(cluster.address)


@pytest.fixture
def watch() -> Watch:
    return Watched()


@pytest.fixture(scope="module")  # what imitates Amazon in test_deploy.py empties all buckets
def bucket() -> Iterator[Any]:
    """A server that keeps buckets as Amazon does, its requests, and what it takes to ask it."""
    server_module = pytest.importorskip("moto.server")
    requests: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            requests.append(record.getMessage())

    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    logger = logging.getLogger("werkzeug")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler := Noting())
    host, port = server.get_host_and_port()
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()  # which may know another server
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        s3fs.S3FileSystem().makedirs("bucket", exist_ok=True)  # of the servers before, all know it
        yield requests
    logger.removeHandler(handler)
    server.stop()
