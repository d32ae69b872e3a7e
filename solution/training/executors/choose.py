"""Choose the executor: `local`, processes of this machine, or `ray`, the nodes of a cluster."""

from solution.system.errors import InputError
from solution.training.executors.base import Executor
from solution.training.executors.cluster import RayExecutor
from solution.training.executors.knocking import check_cluster
from solution.training.executors.local import LocalExecutor

LOCAL, RAY = "local", "ray"


def choose_executor(
    kind: str,
    address: str | None = None,
    workers: int | None = None,
    gpu_share: float = 1.0,
) -> Executor:
    """Return the executor that the user names.

    Raises InputError if the executor or the cluster does not exist, or if an address or a share of
    a GPU is given without a cluster.
    """
    if kind not in (LOCAL, RAY):
        raise InputError(f"{kind!r}: expected the executor {LOCAL} or {RAY}.")
    if kind == RAY:
        check_cluster(address)
        return RayExecutor(address, workers, gpu_share)
    if address is not None:
        raise InputError(f"The address {address} is of a cluster: choose the executor {RAY}.")
    if gpu_share != 1:
        raise InputError(f"--gpu-share {gpu_share:g} is for a cluster: choose the executor {RAY}.")
    return LocalExecutor(workers)
