"""Check whether a TPU can run a module, and find how many devices the module needs."""

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from solution.collecting.tpu.libtpu import Devices, EntryLayouts
from solution.collecting.tpu.reading import open_tuple
from solution.programs.arguments import TYPE_NAMES, find_entry
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.obstacles import count_named

# element types that TPUs do not have
REFUSED_TYPES = {"f64", "c128"}
# Prefixes of custom calls into CPU libraries, which no TPU can run.
CPU_CALLS = ("lapack_", "blas_", "__onednn", "__cpu", "xla_python_cpu", "xla_ffi_python_cpu",
             "ducc_fft", "dynamic_ducc_fft", "cpu_")  # fmt: skip

# Prefix of the custom calls of jax's partitioner Shardy, which jax.shard_map writes.
SHARDY = "xla.sdy."
SHARDED_RESULT = "xla.sdy.FuncResultSharding"


@dataclass(frozen=True)
class CheckedModule:
    """A module that a TPU may run, and the number of devices it needs."""

    devices: Devices
    content: bytes  # the serialized module, without its id, which differs from process to process
    module: bytes  # the serialized module as it was given, out of a dump if it was in one


def check_module(module: bytes) -> CheckedModule | str:
    """Return the checked form of a serialized module, or the reason why no TPU can run it.

    `module` is a HloModuleProto, or a HloProto, which has one in it, as `fastslow module` and XLA's
    dumps write.

    The number of devices is the highest device number in the groups of collective instructions,
    plus one. The devices are partitions if a group numbers devices globally
    (use_global_device_ids) or numbers partitions; otherwise they are replicas.
    """
    dumped = _find_dumped(module)
    if dumped is not None:
        module = dumped.SerializeToString()
    try:
        message = MESSAGES["Module"].FromString(module)
    except DecodeError as error:
        return f"it is no serialized HLO module ({error})"
    if not _has_instructions(message):
        return "the module has no instructions"
    if refused := find_refused(message):
        return refused
    replicas = partitions = 1
    for instruction in instructions(message):
        highest = count_named(instruction)
        if instruction.use_global_device_ids or _is_partitioned(instruction):
            partitions = max(partitions, highest)
        else:
            replicas = max(replicas, highest)
    if replicas > 1 and partitions > 1:
        return (
            f"it mixes groups of {replicas} replicas with groups of {partitions} partitions; "
            "expected one kind"
        )
    message.ClearField("id")
    content = message.SerializeToString(deterministic=True)
    return CheckedModule(Devices(replicas, partitions), content, module)


def _find_dumped(data: bytes) -> Any | None:
    """Return the message Module in a serialized HloProto; None if the bytes are no HloProto."""
    try:
        found = MESSAGES["OptimisedModule"].FromString(data).module
    except DecodeError:
        return None
    return found if _has_instructions(found) else None


def _has_instructions(message: Any) -> bool:
    return any(computation.instructions for computation in message.computations)


def find_entry_layouts(message: Any) -> EntryLayouts:
    """Return the layouts of the entry's parameters, then of its results, in jax's notation."""
    entry = find_entry(message)
    parameters = sorted(
        (i for i in entry.instructions if i.opcode == "parameter"), key=lambda i: i.parameter_number
    )
    (root,) = (i for i in entry.instructions if i.id == entry.root_id)
    groups = ([part for i in parameters for part in open_tuple(i.shape)], open_tuple(root.shape))
    arguments, results = (tuple(map(_name_layout, shapes)) for shapes in groups)
    return arguments, results


def _name_layout(shape: Any) -> str:
    """Return a layout in jax's notation, such as {1,0}; `default` if the shape has none."""
    order = list(shape.layout.minor_to_major)
    return f"{{{','.join(map(str, order))}}}" if order else "default"


def find_optimised(message: Any) -> str:
    """Return a clause for an error message that shows that a message Module was optimised for a
    backend already, such as "fusion.3 is a fusion"; "" if it was not."""
    fused = next((i.name for i in instructions(message) if i.opcode == "fusion"), "")
    if fused:
        return f"{fused} is a fusion"
    return "its instructions are scheduled" if message.schedule.sequences else ""


def find_refused(message: Any) -> str:
    """Return the first reason why a TPU cannot run a message Module; "" if there is none."""
    if sign := find_optimised(message):
        return (
            f"{sign}: the module was optimised already, for this or another backend; expected the "
            "program before that"
        )
    for instruction in instructions(message):
        name = TYPE_NAMES[instruction.shape.element_type]
        if name in REFUSED_TYPES:
            return (
                f"{instruction.name} has the element type {name}, which a TPU has not; "
                "expected f32, bf16 or an integer"
            )
        called = instruction.custom_call_target
        if instruction.opcode == "custom-call" and called.startswith(CPU_CALLS):
            return f"{instruction.name} calls {called}, a function of the CPU's libraries"
        if called == SHARDED_RESULT:
            return (
                f"{instruction.name} calls {called}, a mark of jax's partitioner Shardy, which is "
                "not supported; jax.jit writes it for its out_shardings: leave out out_shardings"
            )
        if called.startswith(SHARDY):
            return (
                f"{instruction.name} calls {called}, a mark of jax's partitioner Shardy (as "
                "jax.shard_map writes it), which is not supported; expected what one device "
                "computes, such as the function that jax.shard_map is given"
            )
    return ""


def _is_partitioned(instruction: Any) -> bool:
    """Return True if the device groups of a collective instruction number partitions, not
    replicas."""
    return instruction.channel_id > 0 and instruction.opcode in (
        "all-to-all",
        "collective-permute",
        "collective-permute-start",
    )
