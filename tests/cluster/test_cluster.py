"""Tasks on several nodes: done once, and again where a process died, but never kept twice.

An address that is of no cluster is refused in seconds, in one line, before anything is made.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection, create_server
from threading import Timer
from typing import Any

import psutil
import pytest

from solution.system.errors import InputError
from solution.system.files import holding
from solution.training.executors import probing
from solution.training.executors.base import Needs, Task
from solution.training.executors.cluster import RETRIES, RayExecutor, choose_executor, fit_needs
from tests.cluster.conftest import open_cluster
from tests.cluster.work import Watched, die, fail, say_where, sleep, square
from tests.conftest import REPOSITORY, FastSlow, assert_refused

JOIN = """
import sys
from solution.training.executors.cluster import RayExecutor
try:
    with RayExecutor(sys.argv[1]).open():
        print("joined")
except Exception as error:
    print(type(error).__name__, error)
"""


def do(executor: RayExecutor, work: Any, arguments: list[tuple], watch: Watched) -> dict[int, Any]:
    found: dict[int, Any] = {}
    tasks = [Task(f"task {number}", given) for number, given in enumerate(arguments)]
    executor.run(work, tasks, watch, found.__setitem__)
    return found


def test_every_task_is_done_and_watched(nodes: RayExecutor, watch: Watched) -> None:
    found = do(nodes, square, [(number,) for number in range(30)], watch)
    assert found == {number: number * number for number in range(30)}
    assert watch.done == 30
    assert sorted(watch.begun) == sorted(f"task {number}" for number in range(30))
    assert set(watch.notes) <= {f"squaring {number}" for number in range(30)}


def test_all_nodes_work(nodes: RayExecutor, watch: Watched) -> None:
    found = do(nodes, say_where, [(number, 0.4) for number in range(6)], watch)
    assert len(set(found.values())) == 2
    with nodes.open():
        assert nodes.slots == 2


def test_an_error_is_not_tried_again(nodes: RayExecutor, watch: Watched, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="defect of"):
        do(nodes, fail, [(tmp_path,)], watch)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_death_is_tried_thrice_more(nodes: RayExecutor, watch: Watched, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "all").mkdir()
    assert do(nodes, die, [(tmp_path / "some", RETRIES)], watch) == {0: "alive"}
    with pytest.raises(InputError, match="0.*process.*4"):
        do(nodes, die, [(tmp_path / "all", 99)], watch)
    assert len(list((tmp_path / "all").iterdir())) == RETRIES + 1


def test_an_interrupt_ends_the_tasks(nodes: RayExecutor, watch: Watched, tmp_path: Path) -> None:
    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.1)
        os.kill(os.getpid(), 2)

    Timer(0, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        do(nodes, sleep, [(tmp_path,), (tmp_path,)], watch)
    deadline = time.monotonic() + 20
    begun = [int(path.name) for path in tmp_path.iterdir()]
    while any(psutil.pid_exists(pid) for pid in begun):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_node_may_join_late_and_another_be_lost(watch: Watched, tmp_path: Path) -> None:
    """The work of a lost node is done on the one that came meanwhile; each result is kept once."""
    with open_cluster(1) as cluster:
        executor = RayExecutor(cluster.address)
        first = cluster.list_all_nodes()[-1]
        kept: list[int] = []

        def keep(number: int, result: str) -> None:
            kept.append(number)
            if len(kept) == 2:
                cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            if len(kept) == 4:
                cluster.remove_node(first, allow_graceful=False)

        tasks = [Task(f"task {number}", (number, 0.5)) for number in range(12)]
        executor.run(say_where, tasks, watch, keep)
    assert sorted(kept) == list(range(12))
    assert watch.done == 12


def test_a_node_with_other_code_is_refused(watch: Watched, tmp_path: Path) -> None:
    for package in ("solution", "ensembles"):
        shutil.copytree(REPOSITORY / package, tmp_path / "other" / package)
    changed = tmp_path / "other" / "solution" / "models" / "nothing.py"
    changed.write_text(changed.read_text("utf-8") + "CHANGED = 1\n", encoding="utf-8")
    (tmp_path / "script.py").write_text(f"""
from tests.cluster.conftest import open_cluster
from tests.cluster.work import Watched, square
from solution.training.executors.base import Task
from solution.training.executors.cluster import RayExecutor, identify_code
import os
with open_cluster(0) as cluster:
    os.environ["PYTHONPATH"] = {str(tmp_path / "other")!r}
    cluster.add_node(num_cpus=1)
    identify_code()
    try:
        RayExecutor(cluster.address).run(square, [Task("t", (2,))], Watched())
    except Exception as error:
        print(type(error).__name__, error)
""")
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], cwd=tmp_path / "elsewhere", text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, check=False,
    )  # fmt: skip
    *_, words = done.stdout.splitlines() or [done.stderr]
    assert words.startswith("InputError") and "another version" in words


def test_what_is_asked_for_fits_a_node() -> None:
    """A task that asked for more than any node has would wait forever."""
    asked = Task("fit", (), Needs(cores=8, gpus=1.0, bytes=5 << 30))
    small = {"CPU": 2.0, "memory": float(1 << 30)}
    assert fit_needs(asked, [small]) == Needs(cores=2, gpus=0.0, bytes=1 << 30)
    assert fit_needs(asked, [small, {**small, "GPU": 1.0}]).gpus == 1.0
    two = Task("fit", (), Needs(gpus=2.0))
    with pytest.raises(InputError, match="needs.*2.*1"):
        fit_needs(two, [{**small, "GPU": 1.0}])

    # The cores of one node and the GPUs of another are no node.
    cores = {"CPU": 64.0, "memory": float(200 << 30)}
    gpus = {"CPU": 4.0, "GPU": 4.0, "memory": float(9 << 30)}
    asked = Task("fit", (), Needs(cores=4, gpus=4.0, bytes=20 << 30))
    assert fit_needs(asked, [cores, gpus]) == Needs(cores=4, gpus=4.0, bytes=9 << 30)
    idle = {"memory": float(1 << 30)}  # a head that does no work: others are still to come
    assert fit_needs(asked, [idle]) == Needs(cores=4, gpus=0.0, bytes=20 << 30)


def test_a_cluster_of_its_own_leaves_nothing_behind(tmp_path: Path) -> None:
    """No token file, no folder, no process; telemetry is off. What a killed one left goes, too."""
    left, used = (Path(tempfile.mkdtemp(prefix="fastslow-ray-", dir="/tmp")) for _ in range(2))
    (left / "session").mkdir()
    script = """
import os, sys
before = dict(os.environ)
from solution.training.executors.base import Task
from solution.training.executors.cluster import RayExecutor
from tests.cluster.work import Watched, square
found = {}
for number in (3, 4):  # as when a cell of a notebook is run again
    tasks = [Task("t", (number,))]
    RayExecutor(None, 1).run(square, tasks, Watched(), lambda _, r: found.update({number: r}))
print(found, sorted(name for name in os.environ if name not in before and "RAY" in name))
"""
    home = {**os.environ, "HOME": str(tmp_path)}
    with holding(used):  # as who is at work does
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=REPOSITORY, env=home, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    used.rmdir()
    assert done.stdout.splitlines()[-1] == "{3: 9, 4: 16} []", done.stdout + done.stderr
    assert not [p for p in tmp_path.rglob("*") if "ray" in p.name or "token" in p.name]
    assert not list(Path("/tmp").glob("fastslow-ray-*"))


def test_without_a_cluster_nothing_imports_ray() -> None:
    script = (
        "import sys; from solution.training.executors.cluster import RayExecutor;"
        "from solution.commands import training; import solution.training.out_of_fold;"
        "sys.exit('ray' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)


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


def test_who_listens_and_says_nothing_is_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probing.SECONDS < 20  # what a user waits for
    monkeypatch.setattr(probing, "SECONDS", 0.5)
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


def test_nobody_answers(watch: Watched) -> None:
    with pytest.raises(InputError, match="cluster answers"):
        do(RayExecutor("127.0.0.1:1"), square, [(1,)], watch)


def test_nothing_is_written_before(fastslow: FastSlow, tmp_path: Path) -> None:
    for address in ("127.0.0.1:1", "ray://head:10001"):
        done = fastslow("run", "--run", tmp_path / "run", "--executor", "ray", "--address", address)
        assert address in assert_refused(done)
        assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service of a head that Ray asks first, and no more of it, with a token; its address."""
    import ray
    from ray._private.services import get_node_ip_address

    with create_server(("", 0)) as free:
        address = f"{get_node_ip_address()}:{free.getsockname()[1]}"
    host, port = address.split(":")
    program = Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs" / "gcs_server"
    folder, token = tmp_path_factory.mktemp("head"), {"RAY_AUTH_TOKEN": "0123456789abcdef" * 2}
    words = [f"--gcs_server_port={port}", f"--node-ip-address={host}", f"--log_dir={folder}"]
    process = subprocess.Popen(
        [program, *words, "--config_list=e30=", "--session-name=test"],
        env=os.environ | token | {"RAY_AUTH_MODE": "token"}, cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
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
def test_a_token_that_is_refused_is_said(own: dict[str, str], guarded: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOIN, guarded], cwd=REPOSITORY, text=True, check=False,
        env={**os.environ, "HOME": str(tmp_path), **own}, capture_output=True,
    )  # fmt: skip
    assert done.stdout.startswith(f"InputError {guarded}: refuses the token"), done
    assert "RAY_AUTH_TOKEN" in done.stdout


def test_an_address_is_looked_at_however_it_came() -> None:
    with pytest.raises(InputError, match="HOST:PORT"), RayExecutor("local").open():
        pass
