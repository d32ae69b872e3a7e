"""Choose the executor; run tasks on a Ray cluster, either an existing one or one started here.

Only Ray's tasks are used, and one actor that forwards progress reports. Results are stored by one
process on this machine, the driver. So a node that dies loses only its running tasks, and a driver
that dies loses no stored result. A task whose process dies is run again, up to three times; a task
that raises an exception is not.

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
from solution.runs.folder import Run
from solution.runs.record import list_versions
from solution.system.errors import InputError
from solution.system.files import holding
from solution.system.processes import count_cores
from solution.system.terminal import say
from solution.system.wording import count, how_to_install
from solution.training.executors import probing
from solution.training.executors.base import (
    Executor,
    Keep,
    Needs,
    Screen,
    Task,
    Throttled,
    Work,
    forget,
)
from solution.training.executors.local import LocalExecutor, limit_threads
from solution.training.jobs import Job, split_loaded
from solution.training.plan import Plan
from solution.training.sites import train_away
from solution.training.watch import Watch

Message = tuple[int, tuple[Any, ...], dict[str, Any]]
# the unpickled function of this process's current run, by the id of its Ray reference
_works: dict[str, Work] = {}


@dataclass(frozen=True)
class RunContext:
    """The data that every task of a run receives besides its arguments."""

    code: dict[str, str]  # versions of the driver's code and libraries
    work: Any  # a Ray reference to the pickled function
    queue: Any  # the actor (MessageQueue) that receives progress reports


class MessageQueue:
    """A queue of the progress reports of all tasks."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def note(self, number: int, facts: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Add a report of task `number`; `facts` and `more` are the arguments of a Report."""
        self._messages.append((number, facts, more))

    def take(self) -> list[Message]:
        """Return the reports since the last call."""
        taken, self._messages = self._messages, []
        return taken


@cache
def identify_code() -> dict[str, str]:
    """Return the versions that decide predictions: a hash of the code, and the libraries."""
    return {"code": fingerprint_code(), **list_versions()}


def do(box: list[RunContext], number: int, arguments: tuple[Any, ...]) -> Any:
    """Run task `number` on a node. `box`: a list whose only element is the run's context. Raises
    InputError if the node's code or libraries differ from the driver's."""
    (context,) = box
    _compare_code(context.code)
    limit_threads(max(1, int(os.environ.get("OMP_NUM_THREADS") or 1)))
    report = Throttled(lambda *facts, **more: context.queue.note.remote(number, facts, more))
    report.begin()
    return _open(context)(*arguments, report)


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


def _open(context: RunContext) -> Work:
    """Return the function that runs the tasks; it is unpickled once per process."""
    key = context.work.hex()
    if key not in _works:
        import ray

        _works.clear()  # drop the function of an earlier run
        _works[key] = pickle.loads(ray.get(context.work))  # noqa: S301 - made by the driver's own process
    return _works[key]


LOCAL, RAY = "local", "ray"
RETRIES = 3  # how often a task is run again if its process dies
POLL_SECONDS = 0.1
AT_ONCE = 64  # maximum number of results fetched at once
STORE_BYTES = 256 << 20  # shared memory for results, which are small; graphs are mapped from files
# Ray's temporary folder is made in the folder SHORT, and its name begins with OWN. The path must be
# short, because Ray's sockets lie in it, and a socket's path has at most 107 bytes.
SHORT, OWN = Path("/tmp"), "fastslow-ray-"
# defaults for environment variables
SETTINGS = {
    # by default Ray never stops retrying a task that needs too much memory
    "RAY_task_oom_retries": str(RETRIES),
    # by default Ray hides the GPUs from tasks that request none
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class RayExecutor:
    """An executor that uses the Ray cluster at `address` (auto or HOST:PORT). If it is None, a
    cluster with `workers` cores is started on this machine and stopped afterwards. A net gets the
    fraction `gpu_share` of a GPU."""

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
        """Connect to the cluster for the block; without an address, start one for the block."""
        return join_cluster(self.address, self.workers)

    def train(self, jobs: Sequence[Job], plan: Plan, run: Run, watch: Watch) -> None:
        """Train jobs; see Executor. Experiments made in memory are trained on this machine."""
        loaded, made = split_loaded(jobs)
        train_away(self, loaded, plan, run, watch)
        LocalExecutor(1).train(made, plan, run, watch)

    def run(self, work: Work, tasks: Sequence[Task], watch: Watch, keep: Keep = forget) -> None:
        """Run all tasks; see Executor."""
        if tasks:
            with self.open() as ray:
                _Running(ray, work, tasks, keep).run(watch)


def choose_executor(
    kind: str, address: str | None = None, workers: int | None = None, gpu_share: float = 1.0
) -> Executor:
    """Return the executor of the `kind` that the user names: LOCAL or RAY. Raises InputError for
    another kind, for RAY if Ray is not installed or no cluster answers at the `address`, and for
    LOCAL if an address or a GPU share is given."""
    if kind not in (LOCAL, RAY):
        raise InputError(f"{kind!r}: expected the executor {LOCAL} or {RAY}.")
    if kind == RAY:
        probing.check_cluster(address)
        return RayExecutor(address, workers, gpu_share)
    if address is not None:
        raise InputError(f"The address {address} is of a cluster: choose the executor {RAY}.")
    if gpu_share != 1:
        raise InputError(f"--gpu-share {gpu_share:g} is for a cluster: choose the executor {RAY}.")
    return LocalExecutor(workers)


class _Running:
    """The submitted tasks of one call of `run`."""

    def __init__(self, ray: Any, work: Work, tasks: Sequence[Task], keep: Keep) -> None:
        self._ray, self._tasks, self._keep = ray, tasks, keep
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        queue = ray.remote(MessageQueue).options(
            num_cpus=0, max_restarts=-1, scheduling_strategy=here
        )
        self._queue = queue.remote()
        context = RunContext(identify_code(), ray.put(pickle.dumps(work)), self._queue)
        # Ray does not fetch `context.work` for a task, because it is nested in `box`: _open fetches
        # it once per process
        box, remote = ray.put([context]), ray.remote(do)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        # check all tasks before the first one is submitted
        asked = [describe_needs(fit_needs(task, nodes)) for task in tasks]
        how = {"max_retries": RETRIES, "retry_exceptions": False}
        self._numbers = {
            remote.options(**asked[number], **how).remote(box, number, task.arguments): number
            for number, task in enumerate(tasks)
        }

    def run(self, watch: Watch) -> None:
        """Wait for all tasks, store their results, and show their progress."""
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
            # after an error, stop the other tasks, which could run for hours
            for reference in self._numbers:
                self._ray.cancel(reference, force=True)
            self._ray.kill(self._queue)

    def _wait(self) -> list[Any]:
        most = min(AT_ONCE, len(self._numbers))
        waiting = list(self._numbers)
        done, _ = self._ray.wait(waiting, num_returns=most, timeout=POLL_SECONDS)
        return list(done)

    def _show_reports(self, screen: Screen) -> None:
        with suppress(self._ray.exceptions.RayError):  # skip it if the actor's node has just died
            for message in self._ray.get(self._queue.take.remote(), timeout=5):
                screen.show(*message)

    def _take(self, reference: Any, number: int) -> Any:
        name, errors = self._tasks[number].name, self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.OutOfDiskError, errors.ObjectStoreFullError) as error:
            raise InputError(
                f"{name}: a node has no room for its result ({error}). Free disk space there and "
                "run the same command again; finished work is kept."
            ) from error
        except errors.RayError as error:
            raise InputError(
                f"{name}: the process at it died {RETRIES + 1} times, as the system ends one when "
                f"memory runs out, or a node that is lost ({type(error).__name__}). What is "
                "finished is kept: the same command goes on."
            ) from error


def fit_needs(task: Task, nodes: Sequence[dict[str, float]]) -> Needs:
    """Return the task's needs, capped at what one node has, because Ray would wait forever for
    more. If no node has CPUs yet, cores and memory are not capped. Raises InputError if no node
    with CPUs has enough GPUs."""
    needs = task.needs
    if not any(node.get("GPU") for node in nodes):  # without any GPU nets are trained on the CPU
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
    """Return the needs as options of a Ray task."""
    return {"num_cpus": needs.cores, "num_gpus": needs.gpus, "memory": needs.bytes or None}


@contextmanager
def join_cluster(address: str | None, workers: int | None = None) -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster as in RayExecutor; nested blocks share the
    connection. Raises InputError if Ray is not installed, or no cluster answers."""
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        yield sys.modules["ray"]
        return
    before, on_end = dict(os.environ), signal.getsignal(signal.SIGTERM)
    os.environ.update({**SETTINGS, **os.environ})
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # send no usage statistics
    if address is None:
        os.environ.update(_make_private())
        os.environ.pop("RAY_ADDRESS", None)
    else:  # Ray's default is to retry a rejected token 20 times, each time with a line
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
                signal.signal(signal.SIGTERM, on_end)  # restore the handler that Ray replaced
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _own_folder() -> Iterator[Path]:
    """Yield a temporary, locked folder for a local cluster; first remove folders that commands left
    when they were killed."""
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
    """Return environment variables that keep others out of a local cluster: a random token, which
    is never on disk. Ray reads them once per process, so return {} if it is imported already."""
    if "ray" in sys.modules:
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def import_ray() -> Any:
    """Return the module `ray`; raise InputError if it is not installed."""
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
    probing.check_cluster_address(address)
    try:
        probing.probe(probing.find_head(address))
        ray.init(address=address, **quiet)
    except InputError:
        raise
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise probing.explain_silence(ray, address, error) from error
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    resources = ray.cluster_resources()
    say(
        f"Cluster {address}: {count(len(nodes), 'node')}, {resources.get('CPU', 0):g} cores, "
        f"{resources.get('GPU', 0):g} GPUs."
    )


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C during the shutdown; a second one would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
