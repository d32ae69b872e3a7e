"""The simulated hardware: devices, and the links between them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solution.system.errors import InputError

GIGABYTE = 1e9
MAX_DEVICES = 64
OPERATIONS, BYTES, LAUNCH, MEMORY = range(4)  # columns of Machine.table


@dataclass(frozen=True)
class Device:
    """A device. A kernel takes max(operations / peak, bytes / bandwidth) + launch seconds on it."""

    name: str
    operations_per_second: float
    bytes_per_second: float
    launch_seconds: float
    memory_bytes: float


# Single-precision peaks from the manufacturers' data sheets.
P100 = Device("P100", 9.3e12, 732e9, 5e-6, 16 * GIGABYTE)
V100 = Device("V100", 15.7e12, 900e9, 5e-6, 32 * GIGABYTE)
CPU = Device("CPU", 1e12, 80e9, 1e-6, 128 * GIGABYTE)
PRESETS = {device.name.lower(): device for device in (P100, V100, CPU)}


@dataclass(frozen=True)
class Machine:
    """Devices; each pair of devices is connected by one link per direction."""

    devices: tuple[Device, ...]
    latency: float = 10e-6  # seconds added to every transfer
    bandwidth: float = 12e9  # bytes a second on each link (PCI Express 3, 16 lanes)

    def __post_init__(self) -> None:
        if not 1 <= len(self.devices) <= MAX_DEVICES:
            raise InputError(
                f"A machine of {len(self.devices)} devices: expected 1 to {MAX_DEVICES}."
            )
        rates = [self.bandwidth, *(d.operations_per_second for d in self.devices),
                 *(d.bytes_per_second for d in self.devices)]  # fmt: skip
        if not all(np.isfinite(rate) and rate > 0 for rate in rates):
            raise InputError("A rate of a device or link is not positive. Give a positive rate.")

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def table(self) -> np.ndarray:
        """One row (4,) per device: operations per second, bytes per second, seconds to launch a
        kernel, bytes of memory."""
        return np.array(
            [
                (d.operations_per_second, d.bytes_per_second, d.launch_seconds, d.memory_bytes)
                for d in self.devices
            ]
        )


def make_machine(count: int, preset: str = "p100") -> Machine:
    """Return a machine with `count` devices; presets joined by + alternate: "v100+p100"."""
    names = preset.lower().split("+")
    unknown = [name for name in names if name not in PRESETS]
    if unknown:
        raise InputError(
            f"There is no device {unknown[0]!r}. There are {', '.join(PRESETS)}; join with +."
        )
    if len(names) > count:
        raise InputError(
            f"{preset}: names {len(names)} devices, but there are {count}. Name fewer."
        )
    return Machine(tuple(PRESETS[names[number % len(names)]] for number in range(count)))
