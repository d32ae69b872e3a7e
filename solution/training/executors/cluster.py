"""Tasks on the nodes of a Ray cluster, or on this machine by a Ray that ends with them.

Only Ray's tasks are used, and one actor that hands on reports. What a task returns is kept here, by
one process, so a node that dies loses only what it was at, and a driver that dies loses nothing
that was kept. A task whose process dies is done again elsewhere, three times; one that raises, not.

Source: Moritz et al., "Ray: a distributed framework for emerging AI applications", OSDI 2018.
"""

import os
import pickle
import platform
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from solution.runs.fingerprint import fingerprint_code
from solution.runs.record import list_versions
from solution.system.errors import InputError
from solution.system.files import holding
from solution.system.processes import count_cores
from solution.system.terminal import say
from solution.system.wording import count, how_to_install
from solution.training.executors.base import Keep, Needs, Task, Work, forget
from solution.training.executors.knocking import check_address, explain, find_head, knock
from solution.training.executors.local import limit_threads
from solution.training.executors.screen import Screen, Throttled
from solution.training.watch import Watch

Message = tuple[int, tuple[Any, ...], dict[str, Any]]
_works: dict[str, Work] = {}  # of this process


@dataclass(frozen=True)
class Parcel:
    """What every task of a run comes with."""

    code: dict[str, str]  # of the driver
    work: Any  # a reference to the pickled work
    board: Any  # where reports go


class Board:
    """Keeps the reports of all tasks until they are taken."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def note(self, number: int, facts: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Take note of what a task reports."""
        self._messages.append((number, facts, more))

    def take(self) -> list[Message]:
        """All that were not taken yet."""
        taken, self._messages = self._messages, []
        return taken


@cache
def identify_code() -> dict[str, str]:
    """What decides predictions: the code and the libraries."""
    return {"code": fingerprint_code(), **list_versions()}


def do(box: list[Parcel], number: int, arguments: tuple[Any, ...]) -> Any:
    """Do a task; what the work returns.

    Raises InputError where this node has other code or other libraries than who asks.
    """
    (parcel,) = box
    _compare_code(parcel.code)
    limit_threads(max(1, int(os.environ.get("OMP_NUM_THREADS") or 1)))
    report = Throttled(lambda *facts, **more: parcel.board.note.remote(number, facts, more))
    report.begin()
    return _open(parcel)(*arguments, report)


def _compare_code(wanted: dict[str, str]) -> None:
    found = identify_code()
    different = [
        f"{name} {found.get(name)}, expected {value}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if different:
        raise InputError(
            f"{platform.node()}: has another version of this program ({'; '.join(different)}). "
            "Install the same on all nodes."
        )


def _open(parcel: Parcel) -> Work:
    """The work, unpacked once a process."""
    key = parcel.work.hex()
    if key not in _works:
        import ray

        _works.clear()  # of an earlier run
        _works[key] = pickle.loads(ray.get(parcel.work))  # noqa: S301 - made by the driver's own process
    return _works[key]


RETRIES = 3  # of a task whose process died
POLL_SECONDS = 0.1
AT_ONCE = 64  # results that are taken at a time
STORE_BYTES = 256 << 20  # of shared memory: results are small, graphs are mapped from files
SHORT, OWN = Path("/tmp"), "fastslow-ray-"  # sockets below it have names of 107 bytes at most
SETTINGS = {  # where the environment has no others
    "RAY_task_oom_retries": str(RETRIES),  # else a fit too large for memory is tried without end
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class RayExecutor:
    """The nodes of a cluster.

    Args:
        address: of the cluster, auto or HOST:PORT; None: one is started here, and ended.
        workers: cores of the one that is started; None: all.
        gpu_share: of a GPU, for each net; 1 where several would be in each other's way.
    """

    address: str | None = None
    workers: int | None = None
    gpu_share: float = 1.0

    @property
    def is_away(self) -> bool:
        return True

    @property
    def slots(self) -> int:
        with self.open() as ray:
            return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def open(self) -> AbstractContextManager[Any]:
        """Stay connected; where no address is given, to a cluster that is started for it."""
        return join_cluster(self.address, self.workers)

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep = forget) -> None:
        """Do all tasks; see Executor."""
        if tasks:
            with self.open() as ray:
                _Running(ray, work, tasks, keep).run(watch)


class _Running:
    """Tasks that were given to a cluster."""

    def __init__(self, ray: Any, work: Work, tasks: Sequence[Task], keep: Keep) -> None:
        self._ray, self._tasks, self._keep = ray, tasks, keep
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        board = ray.remote(Board).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        self._board = board.remote()
        parcel = Parcel(identify_code(), ray.put(pickle.dumps(work)), self._board)
        # Inside a list, so that who does the task fetches the work, once, and not Ray each time.
        box, remote = ray.put([parcel]), ray.remote(do)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        asked = [describe_needs(fit_needs(task, nodes)) for task in tasks]  # or none is begun
        how = {"max_retries": RETRIES, "retry_exceptions": False}
        self._numbers = {
            remote.options(**asked[number], **how).remote(box, number, task.arguments): number
            for number, task in enumerate(tasks)
        }

    def run(self, watch: Watch) -> None:
        """Wait for all, and show how they go on."""
        screen = Screen(watch, [task.name for task in self._tasks])
        try:
            with screen:
                while self._numbers:
                    done = self._wait()
                    self._show_reports(screen)
                    for reference in done:
                        number = self._numbers[reference]
                        self._keep(number, self._take(reference, number))
                        del self._numbers[reference]
                        screen.finish(number)
        finally:
            for reference in self._numbers:  # something went wrong: what they are at may take hours
                self._ray.cancel(reference, force=True)
            self._ray.kill(self._board)

    def _wait(self) -> list[Any]:
        most = min(AT_ONCE, len(self._numbers))
        waiting = list(self._numbers)
        done, _ = self._ray.wait(waiting, num_returns=most, timeout=POLL_SECONDS)
        return list(done)

    def _show_reports(self, screen: Screen) -> None:
        with suppress(self._ray.exceptions.RayError):  # its node may just have died
            for message in self._ray.get(self._board.take.remote(), timeout=5):
                screen.show(*message)

    def _take(self, reference: Any, number: int) -> Any:
        name, errors = self._tasks[number].name, self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.OutOfDiskError, errors.ObjectStoreFullError) as error:
            raise InputError(
                f"{name}: a node has no room for its result ({error}). Make room there; what is "
                "finished is kept: the same command goes on."
            ) from error
        except errors.RayError as error:
            raise InputError(
                f"{name}: the process at it died {RETRIES + 1} times, as the system ends one when "
                f"memory runs out, or a node that is lost ({type(error).__name__}). What is "
                "finished is kept: the same command goes on."
            ) from error


def fit_needs(task: Task, nodes: Sequence[dict[str, float]]) -> Needs:
    """What the task asks for, cut to what one node has, for else it would wait forever.

    Where no node that works is there yet, as in a cluster that grows, it is not cut.

    Raises InputError where nodes have GPUs, but none so many.
    """
    needs = task.needs
    if not any(node.get("GPU") for node in nodes):  # nets are trained without
        needs = replace(needs, gpus=0.0)
    working = [node for node in nodes if node.get("CPU")]
    if not working:
        return needs
    able = [node for node in working if node.get("GPU", 0.0) >= needs.gpus]
    if not able:
        most = max(node.get("GPU", 0.0) for node in working)
        raise InputError(f"{task.name}: needs {needs.gpus:g} GPUs, no node has more than {most:g}.")
    node = max(able, key=lambda node: (min(needs.cores, node["CPU"]), node.get("memory", 0.0)))
    return replace(
        needs,
        cores=int(min(needs.cores, node["CPU"])) or 1,
        bytes=int(min(needs.bytes, node.get("memory", 0.0))),
    )


def describe_needs(needs: Needs) -> dict[str, Any]:
    """In the words of Ray."""
    return {"num_cpus": needs.cores, "num_gpus": needs.gpus, "memory": needs.bytes or None}


@contextmanager
def join_cluster(address: str | None, workers: int | None = None) -> Iterator[Any]:
    """Ray, connected to the cluster or to one of this machine's own; inside itself, the same.

    Raises InputError where Ray is not installed, or no cluster answers.
    """
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        yield sys.modules["ray"]
        return
    before, on_end = dict(os.environ), signal.getsignal(signal.SIGTERM)
    os.environ.update({**SETTINGS, **os.environ})
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is told to anybody
    if address is None:
        os.environ.update(_make_private())
        os.environ.pop("RAY_ADDRESS", None)
    else:  # else a token that is refused is tried twenty times, with a line each
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
    ray = import_ray()
    with nullcontext() if address is not None else _own_folder() as folder:
        try:
            _connect(ray, address, workers, folder)
            yield ray
        finally:
            with _deaf():
                ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_end)  # Ray has one of its own
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """What the Ray that is started here writes to, until its end.

    Who uses one holds it, so one that can be had was left by a command that was killed, and goes.
    """
    for left in filter(Path.is_dir, SHORT.glob(f"{OWN}*")):
        with suppress(OSError), holding(left) as is_left:
            if is_left:
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=OWN, dir=SHORT))
    try:
        with holding(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _make_private() -> dict[str, str]:
    """What keeps others out of a cluster of this machine: a token, kept in no file.

    Ray reads it once a process, so it stays the same; and not at all where somebody else has
    imported Ray before, whose settings then hold.
    """
    if "ray" in sys.modules:
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def import_ray() -> Any:
    """The library; InputError where it is not installed."""
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise InputError(f"A cluster needs Ray ({error}). {how_to_install('cluster')}.") from error
    return ray


def _connect(ray: Any, address: str | None, workers: int | None, folder: Path | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        cores = workers or count_cores()
        ray.init(
            address="local", num_cpus=cores, object_store_memory=STORE_BYTES,
            include_dashboard=False, _temp_dir=str(folder),
            _system_config={"task_oom_retries": RETRIES}, **quiet,
        )  # fmt: skip
        return
    check_address(address)
    try:
        knock(find_head(address))
        ray.init(address=address, **quiet)
    except InputError:
        raise
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise explain(ray, address, error) from error
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    resources = ray.cluster_resources()
    say(
        f"Cluster {address}: {count(len(nodes), 'node')}, {resources.get('CPU', 0):g} cores, "
        f"{resources.get('GPU', 0):g} GPUs."
    )


@contextmanager
def _deaf() -> Iterator[None]:
    """Ending is not interrupted: an impatient second Ctrl-C would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
