"""Compile with libtpu through jax; no other file knows how the TPU's compiler is called.

No TPU is needed. These parts of jax are used: `jax.experimental.topologies`, which opens a
compile-only client of libtpu; `jax.extend.mlir.hlo_to_stablehlo`, which converts serialized
modules; `env_option_overrides`, which sets XLA's options for a single compilation. The output is
read from the files that XLA dumps (`xla_dump_to`), because they exist before the compiler has
ended, and because jaxlib cannot read every module of the newer chips.

Single kernels of an optimised module are compiled through PJRT's C interface, which is stable,
because they may be fusions: jax accepts only StableHLO, which has no fusions.

A process that has compiled cannot be forked, because its threads would be missing in the fork. A
process that has only opened a topology can be forked.
"""

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from solution.collecting.tpu.target import TpuTarget
from solution.programs.compiler import BUILD_OPTIONS, RefusedError, encode_field, shorten
from solution.programs.hlo.messages import MESSAGES

# {TPU generation: (name of the topology, rank of the grid of chips, jax devices per chip)}
TOPOLOGIES = {
    "v2": ("v2", 2, 2),
    "v3": ("v3", 2, 2),
    "v4": ("v4", 3, 2),
    "v5e": ("v5e", 2, 1),
    "v5p": ("v5p", 3, 1),
    "v6e": ("v6e", 2, 1),
    "v7x": ("tpu7x", 3, 2),
}
SMALLEST = (2, 2)  # sizes of the smallest grid of chips: the chips of one host
MOST_CHIPS = 2048
# Layouts of the entry's parameters, then of its results, in jax's notation: {1,0} or default.
EntryLayouts = tuple[tuple[str, ...], tuple[str, ...]]
Option = tuple[str, bool | int | float | str]  # an option's name in XLA, and its value
ENDING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
LAYOUT_MODE = "mhlo.layout_mode"
# Endings of the compiler's dumps, in the order of writing; a file is complete once the next exists.
PASSED = "after_optimizations.hlo.pb"
PASSED_ENDS = "after_optimizations_after_buffer_assignment.hlo.pb"
GENERATED = "after_codegen.hlo.pb"
GENERATED_ENDS = "transfer_stats.pb"
# positions of functions in the table of PJRT's C interface, which are fixed
ERROR_DESTROY, ERROR_MESSAGE, TOPOLOGY_CREATE, COMPILE = 0, 1, 82, 89
TABLE_BEGIN = 40  # byte at which the table of functions begins in the interface's struct
PJRT_MAJOR = 0  # major version of PJRT's C interface
# RESULT_LAYOUT: a field's number in the build options of CompileOptionsProto. BACKEND_ONLY: the
# serialized field `run_backend_only = true` of the build options.
RESULT_LAYOUT, BACKEND_ONLY = 2, b"\x58\x01"
# Options that stop the compiler from changing the memory spaces that the passes over HLO assigned.
KEEP_SPACES = (
    ("xla_jf_vmem_memory_space_assignment", False),
    ("xla_vf_vmem_memory_space_assignment", False),
)


@dataclass(frozen=True)
class Devices:
    """The number of devices that a module is compiled for, as replicas x partitions."""

    replicas: int = 1
    partitions: int = 1

    @property
    def count(self) -> int:
        return self.replicas * self.partitions


def prepare_environment(folder: Path) -> None:
    """Set the environment variables that libtpu reads; call it before jax is imported. With them,
    libtpu asks no metadata server, writes its logs into `folder` and makes no lock file."""
    os.environ.update(
        JAX_PLATFORMS="cpu",  # jax itself computes on the CPU and looks for no TPU
        JAX_ENABLE_COMPILATION_CACHE="false",
        TPU_SKIP_MDS_QUERY="1",
        TPU_WORKER_HOSTNAMES="localhost",
        # avoids a warning; the topology decides for which chip to compile, not this variable
        TPU_ACCELERATOR_TYPE="v3-8",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # allows several processes, without a lock file
        TPU_LOG_DIR=str(folder),
        TPU_STDERR_LOG_LEVEL="3",
        TPU_MIN_LOG_LEVEL="3",
        TF_CPP_MIN_LOG_LEVEL="2",
    )


def name_topology(target: TpuTarget, devices: int) -> str:
    """Return the name of the smallest topology with at least `devices` devices, such as v3:2x2.
    Raises RefusedError if the largest topology has fewer."""
    name, rank, per_chip = TOPOLOGIES[target.generation]
    sizes = [*SMALLEST, *(1 for _ in range(rank - len(SMALLEST)))]
    while np.prod(sizes) * per_chip < devices:
        sizes[sizes.index(min(sizes))] *= 2
    if np.prod(sizes) > MOST_CHIPS:
        raise RefusedError(
            f"it needs {devices:,} devices; the largest topology has {MOST_CHIPS * per_chip:,}"
        )
    return f"{name}:{'x'.join(map(str, sizes))}"


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Restore the handlers of SIGHUP, SIGINT and SIGTERM after a block that loads libtpu.

    libtpu ignores SIGHUP and catches the other two. Child processes would inherit an ignored
    signal.
    """
    # Python's record of the handlers, which does not change when libtpu sets handlers in C
    kept = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    yield
    for number, handler in kept.items():
        if handler is not None:
            signal.signal(number, handler)


class Libtpu:
    """The compiler for a target; the process must have called `prepare_environment` before."""

    def __init__(self, target: TpuTarget) -> None:
        """Load libtpu and open the smallest topology. Raises InputError if this machine cannot
        compile for the target."""
        target.check()
        self._target = target
        jax = import_module("jax")
        jax.config.update("jax_traceback_in_locations_limit", 0)
        self._topologies = import_module("jax.experimental.topologies")
        self._to_stablehlo = import_module("jax.extend.mlir").hlo_to_stablehlo
        self._make_context = import_module("jax._src.interpreters.mlir").make_ir_context
        self._ir = import_module("jaxlib.mlir.ir")
        self._internals = import_module("jaxlib._jax")
        with _kept_signals():
            self._smallest = self._open(1)
            self._interface = _open_interface(name_topology(target, 1))

    def compile(
        self,
        module: bytes,
        options: Sequence[Option],
        devices: Devices,
        layouts: EntryLayouts | None,
        folder: Path,
    ) -> None:
        """Compile a serialized module (HloModuleProto); the dumps appear in `folder`.

        Args:
            devices: number of replicas and partitions to compile for.
            layouts: layouts of the entry's parameters and results; by default those that the chip
                gives to arrays of their sizes, as in a program of jax.

        Raises RefusedError with the compiler's message. If the compiler aborts, the process ends.
        """
        found = self._smallest if devices.count == 1 else self._open(devices.count)
        chosen = found[: devices.count]
        try:
            with self._make_context():
                program = self._ir.Module.parse(self._to_stablehlo(module))
                if layouts is not None:
                    self._pin(program, layouts)
            chosen[0].client.compile(
                program,
                self._internals.DeviceList(tuple(chosen)),
                self._make_options(options, devices, chosen, folder),
            )
        except Exception as error:
            raise RefusedError(shorten(error)) from error

    def generate(self, module: bytes, options: Sequence[Option], folder: Path) -> None:
        """Generate machine code for a serialized, optimised module; the dumps appear in `folder`.

        Raises RefusedError with the compiler's message. If the compiler aborts, the process ends.
        """
        if self._interface is None:
            raise RefusedError("libtpu has another version of PJRT's C interface")
        told = self._make_options([*options, *KEEP_SPACES], Devices(), self._smallest[:1], folder)
        result = MESSAGES["Module"].FromString(module).host_program_shape.result
        added = encode_field(RESULT_LAYOUT, result.SerializeToString()) + BACKEND_ONLY
        # protobuf merges a message field that is written twice: `added` joins the build options
        told_also = encode_field(BUILD_OPTIONS, added)
        self._interface.compile(module, told.SerializeAsString() + told_also)

    def _pin(self, program: Any, layouts: EntryLayouts) -> None:
        """Set the layouts of the parameters and results of a program's main function, in place."""
        ir = self._ir
        for function in program.body.operations:
            if function.attributes["sym_name"].value == "main":
                for name, modes in zip(("arg_attrs", "res_attrs"), layouts, strict=True):
                    values = [{LAYOUT_MODE: ir.StringAttr.get(mode)} for mode in modes]
                    found = [ir.DictAttr.get(value) for value in values]
                    function.attributes[name] = ir.ArrayAttr.get(found)

    def _open(self, devices: int) -> list[Any]:
        """Return all devices of the smallest topology that has at least `devices` devices."""
        name = name_topology(self._target, devices)
        return list(self._topologies.get_topology_desc(platform="tpu", topology_name=name).devices)

    def _make_options(
        self, options: Sequence[Option], devices: Devices, chosen: Sequence[Any], folder: Path
    ) -> Any:
        found = self._internals.CompileOptions()
        found.num_replicas, found.num_partitions = devices.replicas, devices.partitions
        found.executable_build_options.num_replicas = devices.replicas
        found.executable_build_options.num_partitions = devices.partitions
        # the compiler refuses several partitions otherwise
        found.executable_build_options.use_spmd_partitioning = devices.partitions > 1
        numbers = np.array([device.id for device in chosen])
        found.device_assignment = self._internals.DeviceAssignment.create(
            numbers.reshape(devices.replicas, devices.partitions)
        )
        dumps = [("xla_dump_to", str(folder)), ("xla_dump_hlo_as_proto", True)]
        found.env_option_overrides = [*options, *dumps]
        return found


def _make_struct(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """Return a ctypes class for a struct of PJRT's C interface: its size and a pointer to an
    extension, then `fields`."""
    common = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": [*common, *fields]})


def _fill(struct: type[ctypes.Structure], *values: Any) -> Any:
    """Return a struct made by `_make_struct` with its size, no extension, and these values."""
    return struct(ctypes.sizeof(struct), None, *values)


_TEXT = [("text", ctypes.c_char_p), ("size", ctypes.c_size_t)]
_TOPOLOGY = _make_struct(
    *_TEXT, ("options", ctypes.c_void_p), ("count", ctypes.c_size_t), ("made", ctypes.c_void_p)
)
_PROGRAM = _make_struct(*_TEXT, ("format", ctypes.c_char_p), ("format_size", ctypes.c_size_t))
_COMPILE = _make_struct(
    ("topology", ctypes.c_void_p),
    ("program", ctypes.c_void_p),
    *_TEXT,
    ("client", ctypes.c_void_p),
    ("made", ctypes.c_void_p),
)
_MESSAGE = _make_struct(
    ("error", ctypes.c_void_p), ("text", ctypes.c_void_p), ("size", ctypes.c_size_t)
)
_ERROR = _make_struct(("error", ctypes.c_void_p))


def _open_interface(topology: str) -> "CInterface | None":
    """Return libtpu's C interface; None if its major version is not PJRT_MAJOR."""
    library = ctypes.CDLL(import_module("libtpu").get_library_path())
    library.GetPjrtApi.restype = ctypes.c_void_p
    table = library.GetPjrtApi()
    if ctypes.c_int.from_address(table + TABLE_BEGIN - 8).value != PJRT_MAJOR:
        return None
    return CInterface(table, topology)


class CInterface:
    """PJRT's C interface to libtpu; jax must have loaded libtpu in this process."""

    def __init__(self, table: int, topology: str) -> None:
        """Open the topology with this name; `table` is the address of the interface's functions."""
        self._table = table
        name = topology.encode()
        asked = _fill(_TOPOLOGY, name, len(name), None, 0, None)
        self._call(TOPOLOGY_CREATE, asked)
        self._topology = asked.made

    def compile(self, module: bytes, options: bytes) -> None:
        """Compile a serialized HloModuleProto with a serialized CompileOptionsProto. Raises
        RefusedError with the compiler's message."""
        program = _fill(_PROGRAM, module, len(module), b"hlo", len(b"hlo"))
        where = ctypes.addressof(program)
        self._call(
            COMPILE, _fill(_COMPILE, self._topology, where, options, len(options), None, None)
        )

    def _call(self, number: int, arguments: ctypes.Structure) -> None:
        """Call function `number` of the table; raise RefusedError with its error's message."""
        error = self._run(number, arguments)
        if error:
            told = _fill(_MESSAGE, error, None, 0)
            self._run(ERROR_MESSAGE, told)
            text = ctypes.string_at(told.text, told.size).decode(errors="replace")
            self._run(ERROR_DESTROY, _fill(_ERROR, error))
            raise RefusedError(text)

    def _run(self, number: int, arguments: ctypes.Structure) -> int | None:
        """Call function `number` of the table; return its error's address, None if it succeeds."""
        size = ctypes.sizeof(ctypes.c_void_p)
        entry = ctypes.c_void_p.from_address(self._table + TABLE_BEGIN + size * number).value
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(entry or 0)
        found = function(ctypes.addressof(arguments))
        return None if found is None else int(found)
