"""How much memory a process of a benchmark has, or had at most (Linux)."""

from pathlib import Path


def memory(name: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at most.

    What getrusage calls the maximum counts the process that started this one, up to then, too.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))
