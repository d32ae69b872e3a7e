"""Explain why a module cannot be run here, or how it differs from the program the user wrote.

A module cannot be run if it is for several devices, calls back into the Python process that made
it, exchanges data with the host, or was optimised for another backend.
"""

from math import prod
from typing import Any

from google.protobuf.message import DecodeError

from solution.programs.forms import Source
from solution.programs.hlo.messages import MESSAGES, instructions

CALLBACK = "python"  # A custom call calls Python if its target contains this word and "callback".
COLLECTIVES = (
    "all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute",
    "ragged-all-to-all", "reduce-scatter",
)  # fmt: skip
# Instructions that wait for the host or another device; some names end with -done.
WAITING = ("infeed", "outfeed", "send", "recv")
# Custom calls of jax.shard_map, before and after the part that runs on each device.
BORDERS = (
    "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "SPMDFullToShardShape",
    "SPMDShardToFullShape",
)  # fmt: skip
# prefixes of custom calls that only exist on GPUs
OF_GPUS = ("__cu", "__triton", "__gpu", "triton")
DUMP = (
    "Dump it before optimisation: XLA_FLAGS=--xla_dump_to=FOLDER writes "
    "*before_optimizations.txt, with --xla_dump_hlo_as_proto *before_optimizations.hlo.pb."
)


def find_obstacle(module: Any, source: Source | None = None) -> str:
    """Return why a message Module, read from the text `source` if given, cannot run on one device;
    "" if it can."""
    partitions = source.partitions if source else 1
    for instruction in instructions(module):
        target = instruction.custom_call_target
        if CALLBACK in target and "callback" in target:
            return (
                "calls back into Python (jax.debug.print, pure_callback, ...), and is compiled and "
                "timed in processes that have no such function. Leave that out."
            )
        if instruction.opcode.removesuffix("-done") in WAITING:
            return (
                f"exchanges data with its host or another device ({instruction.opcode}), which "
                "does not answer here. `fastslow rank` looks at it; to measure, give a program "
                "without that."
            )
        if target.startswith(OF_GPUS):
            return f"calls {target}, which only the backend has that optimised it. {DUMP}"
    if _is_shared(module):
        return (
            f"is divided among {_count_devices(module, partitions)} devices (jax.shard_map), and "
            "only one is here. `fastslow rank` looks at it; to measure, give the program of one "
            "device."
        )
    for instruction in instructions(module):
        devices = _count_collecting(instruction, partitions)
        if devices > 1:
            number = max(devices, partitions)
            said = f" (num_partitions={partitions})" if partitions > 1 else ""
            return (
                f"is one of {number} partitions{said}, which exchange results "
                f"({instruction.opcode}), and only one device is here. `fastslow rank` looks at "
                "it; to measure, give a program without collectives."
            )
    return ""


def _count_collecting(instruction: Any, partitions: int) -> int:
    """Return how many devices a collective instruction connects; 0 for other instructions."""
    if instruction.opcode.removesuffix("-start") not in COLLECTIVES:
        return 0
    return count_named(instruction) if _names_devices(instruction) else partitions


def _is_shared(module: Any) -> bool:
    return any(i.custom_call_target in BORDERS for i in instructions(module))


def describe_module(module: Any, source: Source | None = None) -> list[str]:
    """Return sentences for the user on how a module differs from the program that the user wrote,
    for example that it is the part of one device."""
    found = []
    number = source.partitions if source and source.partitions > 1 else _count_divided(module)
    if number > 1:
        found.append(
            f"It is meant for {number} partitions and not divided yet: the whole is looked at, as "
            "one device runs it."
            if _has_shardings(module) and not module.schedule.sequences
            else f"One of {number} partitions is looked at (num_partitions={number}); run, it is "
            "the first."
        )
    if source and source.replicas > 1:
        found.append(f"One of {source.replicas} replicas is looked at.")
    devices = _count_devices(module, 1)
    if number == 1 and devices > 1:
        found.append(
            f"It is divided among {devices} devices (jax.shard_map): what each of them computes is "
            "looked at."
            if _is_shared(module)
            else f"One of {devices} devices is looked at."
        )
    if module.schedule.sequences:
        found.append(f"It is optimised for a backend already, layouts with it. {DUMP}")
    return found


def _count_divided(module: Any) -> int:
    """Return among how many partitions the module's shardings divide its tensors; 1 if they divide
    none, or if the module is divided already. A module that XLA divided keeps the shardings of its
    parameters; it is known by its schedule."""
    if module.schedule.sequences or _count_devices(module, 1) > 1 or _is_shared(module):
        return 1
    found = (_count_tiles(instruction.sharding) for instruction in instructions(module))
    return max(found, default=1)


def _count_tiles(sharding: bytes) -> int:
    if not sharding:
        return 1
    try:
        whole = MESSAGES["Sharding"].FromString(sharding)
    except DecodeError:  # damaged, and only used for a sentence
        return 1
    return max(prod(one.tile_assignment_dimensions) for one in (whole, *whole.tuple_shardings))


def _has_shardings(module: Any) -> bool:
    return any(
        instruction.sharding or "Sharding" in instruction.custom_call_target
        for instruction in instructions(module)
    )


def _count_devices(module: Any, least: int) -> int:
    return max([least, *map(count_named, instructions(module))])


def _names_devices(instruction: Any) -> bool:
    return bool(
        instruction.replica_groups
        or instruction.collective_device_list.replica_groups
        or instruction.source_target_pairs
    )


def count_named(instruction: Any) -> int:
    """Return how many devices a collective instruction names: its highest device number plus 1."""
    groups = [*instruction.replica_groups, *instruction.collective_device_list.replica_groups]
    named = [number for group in groups for number in group.replica_ids]
    named += [n for pair in instruction.source_target_pairs for n in (pair.source, pair.target)]
    return max(named, default=0) + 1
