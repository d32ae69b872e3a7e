"""Use XLA's compiler through jax; no other file depends on the internals of jax and jaxlib.

The inputs are serialized modules (HloModuleProto). The outputs are executables as bytes, which
another process can load, so a crash while compiling does not end the process that measures. These
parts of jax are used:

* `jax.extend.mlir.hlo_to_stablehlo`, which converts modules, and the client of
  `jax.extend.backend`, which compiles the result;
* `jaxlib._hlo` for HLO text (`jaxlib._jax` up to 0.10.1), `jaxlib._jax` for options of a single
  compilation.
"""

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np
from packaging.version import Version

from solution.system.errors import InputError
from solution.system.wording import how_to_install

OLDEST = Version("0.9")  # oldest supported jax; 0.8 has no options for tiles
INSTALL = how_to_install("collect")
# part of XLA's message if main is missing
NO_MAIN = "requires module with `main` function"
# field numbers on the way from CompileOptionsProto to the map xla_backend_extra_options
BUILD_OPTIONS, DEBUG_OPTIONS, BACKEND_OPTIONS = 3, 3, 500


class RefusedError(Exception):
    """The compiler rejects a program; the message states its reason."""


@dataclass(frozen=True)
class Flags:
    """Options of a single compilation."""

    # (name, value) of options that are fields of a protobuf message, such as xla_cpu_...
    options: tuple[tuple[str, bool | int | str], ...] = ()
    # (name, value) of options in the map xla_backend_extra_options
    backend: tuple[tuple[str, str], ...] = ()


def check_installed() -> str:
    """Return jax's version without importing it; InputError if missing or below OLDEST."""
    try:
        found = version("jax")
        version("jaxlib")
    except PackageNotFoundError as error:
        raise InputError(
            f"Programs are compiled by jax, which is not installed. {INSTALL}."
        ) from error
    if Version(found) < OLDEST:
        raise InputError(f"jax {found} is older than {OLDEST}. {INSTALL}.")
    return found


class Compiler:
    """An XLA client in this process. It uses the cores that are allowed to the process when the
    client is created."""

    def __init__(self) -> None:
        check_installed()
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        # use no compilation cache, because other users may share it
        os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
        self._jax = import_module("jax")
        self._internals = import_module("jaxlib._jax")
        self._jax.config.update("jax_cpu_enable_async_dispatch", False)
        # keep file paths out of modules: they change the hash, and reveal names of users' folders
        self._jax.config.update("jax_traceback_in_locations_limit", 0)
        _find_lapack()
        self._client = import_module("jax.extend.backend").get_backend()
        self._device = self._client.local_devices()[0]
        self._devices = self._internals.DeviceList((self._device,))

    @property
    def platform(self) -> str:
        """Return the platform's name, such as cpu."""
        return str(self._client.platform)

    def lower(
        self, function: Callable[..., Any], arguments: Sequence[Any], platform: str = "cpu"
    ) -> tuple[bytes, list[np.ndarray | None]]:
        """Lower a function with jax for the platform cpu or tpu, which differ in a few functions.
        Return the serialized module, and all leaves of the argument trees, even unused ones, as
        arrays (None for a jax.ShapeDtypeStruct)."""
        leaves = self._jax.tree_util.tree_leaves(arguments)
        with self._jax.default_device(self._device):
            jitted = self._jax.jit(function, keep_unused=True)
            if platform == "cpu":
                lowered = jitted.lower(*arguments)
            else:
                lowered = jitted.trace(*arguments).lower(lowering_platforms=(platform,))
            module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
            values = [self._find_numbers(leaf) for leaf in leaves]
        return module, values

    def _find_numbers(self, leaf: Any) -> np.ndarray | None:
        """Return an argument as a numpy array, a jax random key as its integers; None for a
        jax.ShapeDtypeStruct."""
        jax = self._jax
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return None
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(jax.numpy.asarray(leaf))

    def parse_stablehlo(self, content: str | bytes, function: str = "") -> bytes:
        """Parse StableHLO (MLIR text or bytecode) into a serialized module of `function` (default:
        main, or the only one). Raises RefusedError if it is not StableHLO, or if it has several
        functions without a main."""
        from solution.programs.functions import has_declaration, make_main

        if not function and not has_declaration(content):
            try:
                return self._convert(content)
            except RefusedError as error:
                if NO_MAIN not in str(error):
                    raise
        try:
            content = make_main(content, function)
        except InputError as error:
            raise RefusedError(str(error)) from error
        except Exception as error:
            raise RefusedError(shorten(error)) from error
        return self._convert(content)

    def _convert(self, content: str | bytes) -> bytes:
        try:
            computation = self._internals.mlir.mlir_module_to_xla_computation(content)
        except Exception as error:
            raise RefusedError(shorten(error)) from error
        return bytes(computation.as_serialized_hlo_module_proto())

    def parse_hlo(self, text: str) -> bytes:
        """Parse HLO text into a serialized module. Raises RefusedError if XLA cannot parse it."""
        try:
            module = _import_hlo().hlo_module_from_text(text)
        except Exception as error:
            raise RefusedError(shorten(error)) from error
        return bytes(module.as_serialized_hlo_module_proto())

    def compile(self, module: bytes, flags: Flags) -> "Executable":
        """Compile a module for the first device. Raises RefusedError if XLA rejects it; but XLA may
        also crash, which ends the process."""
        options = self._compile_options(flags)
        try:
            stablehlo = import_module("jax.extend.mlir").hlo_to_stablehlo(module)
            compiled = self._client.compile_and_load(stablehlo, self._devices, options)
        except Exception as error:
            raise RefusedError(shorten(error)) from error
        return Executable(self._client, compiled)

    def load(self, executable: bytes) -> "Executable":
        """Load the bytes that `Executable.serialize` returned in any process of this command."""
        return Executable(
            self._client, self._client.deserialize_executable(executable, self._devices, None)
        )

    def place(self, arguments: Sequence[np.ndarray]) -> list[Any]:
        """Copy arrays to the device, without changing their types; return the device's arrays."""
        with self._jax.enable_x64(True):
            return [self._jax.device_put(array, self._device) for array in arguments]

    def _compile_options(self, flags: Flags) -> Any:
        options = self._internals.CompileOptions()
        # Protobuf merges a message field that is written twice, so this adds to the options.
        if flags.backend:
            pairs = [
                encode_field(1, key.encode()) + encode_field(2, text.encode())
                for key, text in flags.backend
            ]
            debug = b"".join(encode_field(BACKEND_OPTIONS, pair) for pair in pairs)
            added = encode_field(BUILD_OPTIONS, encode_field(DEBUG_OPTIONS, debug))
            options = type(options).ParseFromString(options.SerializeAsString() + added)
        options.env_option_overrides = list(flags.options)
        return options


class Executable:
    """A compiled program that can be run."""

    def __init__(self, client: Any, compiled: Any) -> None:
        self._client = client
        self._compiled = compiled

    def serialize(self) -> bytes:
        """Return bytes for `Compiler.load` in any process of this command; RefusedError if jax
        cannot serialize the executable."""
        try:
            return bytes(self._client.serialize_executable(self._compiled))
        except Exception as error:
            raise RefusedError(
                "it is compiled, but jax cannot hand it to the process that times it: "
                f"{shorten(error)}"
            ) from error

    def optimised(self) -> bytes:
        """Return the serialized module after all of the compiler's passes."""
        return bytes(self._compiled.hlo_modules()[0].as_serialized_hlo_module_proto())

    def call(self, arguments: list[Any]) -> list[Any]:
        """Run once, wait for the results, and return them as arrays on the device."""
        results = self._compiled.execute_sharded(arguments)
        arrays = [shards[0] for shards in results.disassemble_into_single_device_arrays()]
        for array in arrays:
            array.block_until_ready()
        return arrays

    def run(self, arguments: list[Any]) -> list[np.ndarray]:
        """Run once; return the results as numpy arrays."""
        return [np.asarray(array) for array in self.call(arguments)]


def print_hlo(module: bytes) -> str:
    """Return a module as HLO text with all numbers. Raises InputError without a recent jax,
    RefusedError if XLA rejects it."""
    check_installed()
    try:
        hlo = _import_hlo()
        options = hlo.HloPrintOptions()
        options.print_large_constants = True
        read = hlo.HloModule.from_serialized_hlo_module_proto(module)
        return str(read.to_string(options))
    except Exception as error:
        raise RefusedError(shorten(error)) from error


def _import_hlo() -> Any:
    """Return jaxlib's reader and writer of HLO, whose name depends on the version."""
    return import_module("jaxlib._hlo" if find_spec("jaxlib._hlo") else "jaxlib._jax")


def _find_lapack() -> None:
    """Register LAPACK's functions with XLA. jax does that only when it lowers a program that needs
    them; in a process that lowers none, their first call would crash."""
    with suppress(ImportError, AttributeError):
        import_module("jaxlib.lapack")._lapack.initialize()


def shorten(error: BaseException) -> str:
    """Return the first line of an error's message, and the second if the first ends with a colon;
    at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = (lines or [type(error).__name__])[0]
    if said.endswith(":") and len(lines) > 1:
        said = f"{said} {lines[1]}"
    return said[:300]


def encode_field(number: int, data: bytes) -> bytes:
    """Return a serialized protobuf field that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


@functools.cache
def _varint(number: int) -> bytes:
    """Return a number in protobuf's variable-length encoding."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])
