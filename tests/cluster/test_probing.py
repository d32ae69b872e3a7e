"""An address that is of no cluster is refused in seconds, in one line, before anything is made."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection, create_server

import pytest

from solution.system.errors import InputError
from solution.training.executors.cluster import RayExecutor, choose_executor
from tests.conftest import REPOSITORY, FastSlow

TOKEN = "0123456789abcdef" * 2
JOIN = """
import sys
from solution.training.executors.cluster import RayExecutor
try:
    with RayExecutor(sys.argv[1]).open():
        print("joined")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "address", ["", "local", "ray://head:10001", "head", "head:", ":1", "a b:1"]
)
def test_what_is_no_address_says_what_is(address: str) -> None:
    with pytest.raises(InputError, match="expected.*HOST.*PORT") as caught:
        choose_executor("ray", address)
    assert str(caught.value).startswith(repr(address))


def test_a_password_is_not_shown() -> None:
    for address in ("http://user:secret@host", "user:secret@host:1"):
        with pytest.raises(InputError, match="the environment") as caught:
            choose_executor("ray", address)
        assert "secret" not in str(caught.value)


def test_who_listens_and_says_nothing_is_no_ray() -> None:
    with create_server(("127.0.0.1", 0)) as server:
        address, begun = f"127.0.0.1:{server.getsockname()[1]}", time.monotonic()
        with pytest.raises(InputError, match=f"{address}: no Ray cluster answers there"):
            choose_executor("ray", address)
        assert time.monotonic() - begun < 20


def test_a_server_of_something_else_is_no_ray(bucket: list[str]) -> None:
    address = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    with pytest.raises(InputError, match="something else"):
        choose_executor("ray", address)


def test_without_ray_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="cluster needs"):
        choose_executor("ray")


def test_nothing_is_written_before(fastslow: FastSlow, tmp_path: Path) -> None:
    for address in ("127.0.0.1:1", "ray://head:10001"):
        done = fastslow("run", "--run", tmp_path / "run", "--executor", "ray", "--address", address)
        assert done.returncode == 2
        assert address in done.stderr
        assert not list(tmp_path.iterdir())


@contextmanager
def open_head(folder: Path, **environment: str) -> Iterator[str]:
    """The service of a head that Ray asks first, and no more of it; its address."""
    import ray
    from ray._private.services import get_node_ip_address

    with create_server(("", 0)) as free:
        address = f"{get_node_ip_address()}:{free.getsockname()[1]}"
    host, port = address.split(":")
    program = Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs" / "gcs_server"
    words = [f"--gcs_server_port={port}", f"--node-ip-address={host}", f"--log_dir={folder}"]
    process = subprocess.Popen(
        [program, *words, "--config_list=e30=", "--session-name=test"],
        env=os.environ | environment, cwd=folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(600):
            try:
                create_connection((host, int(port)), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("own", [
    {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token"},
    {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 32},
])  # fmt: skip
def test_a_token_that_is_refused_is_said(own: dict[str, str], tmp_path: Path) -> None:
    given = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    with open_head(tmp_path, **given) as address:
        done = subprocess.run(
            [sys.executable, "-c", JOIN, address], cwd=REPOSITORY, text=True, check=False,
            env={**os.environ, "HOME": str(tmp_path), **own}, capture_output=True,
        )  # fmt: skip
    assert done.stdout.startswith(f"InputError {address}: refuses the token"), done
    assert "RAY_AUTH_TOKEN" in done.stdout


def test_an_address_is_looked_at_however_it_came() -> None:
    with pytest.raises(InputError, match="HOST:PORT"), RayExecutor("local").open():
        pass
