"""Read the messages of hlo.proto from a file: tuning records, or a module as XLA dumps it.

The classes are made at run time from the compiled description beside it, hlo.binpb: code that the
protobuf compiler writes works with a few versions of the library only, and Kaggle has its own.

    XLA_FLAGS="--xla_dump_to=FOLDER --xla_dump_hlo_as_proto"   writes such modules, *.hlo.pb
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from solution.system.errors import InputError
from solution.system.files import open_regular

MAX_BYTES = (1 << 31) - 1  # a message of protobuf is not larger
DESCRIPTION = Path(__file__).parent / "hlo.binpb"
EXPECTED = (
    "expected a binary protobuf: a TuningData, a ModuleTuningData, or a module that XLA dumped "
    "with --xla_dump_hlo_as_proto"
)
ADVICE = "Get the file again, or write it in one of these forms."
TEXT_ADVICE = "`fastslow rank FILE` reads text of HLO (.hlo) and StableHLO (.mlir)."
TEXT_BYTES = 256  # of a file, by which text is told from anything else


def _make_classes() -> dict[str, Any]:
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes())
    pool = descriptor_pool.DescriptorPool()  # its own: another program's messages stay apart
    for file in files.file:
        pool.Add(file)
    names = [message.name for file in files.file for message in file.message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"fastslow.{name}"))
        for name in names
    }


MESSAGES = _make_classes()  # by their names in hlo.proto


def read_records(path: Path) -> list[Any]:
    """The messages TuningRecord of the file, in order; a bare module is one without runs.

    Which form a file has it does not say: the first in which it holds instructions is taken.

    Raises InputError where it has none of the forms, is truncated, or too large.
    """
    data = _read(path)
    defects = []
    for read in (_read_tuning_records, _read_tuning_record, _read_module):
        try:
            records = read(data)
        except DecodeError as error:
            defects.append(str(error))
            continue
        if records and all(_is_module(record.module) for record in records):
            for record in records:
                check_sizes(record.module, str(path))
            return records
    if _is_text(data):
        raise InputError(f"{path}: {EXPECTED}; found text. {TEXT_ADVICE}")
    found = f"found none ({defects[-1]})" if len(defects) == 3 else "found no instructions in it"
    raise InputError(f"{path}: {EXPECTED}; {found}: truncated, or another file. {ADVICE}")


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise InputError(
                    f"{path}: expected at most {MAX_BYTES:,} bytes, which a protobuf message may "
                    f"have, found {size:,}. Divide the records among several files."
                )
            data = file.read()
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    if not data:
        raise InputError(f"{path}: {EXPECTED}; found an empty file. {ADVICE}")
    return data


def _read_tuning_records(data: bytes) -> list[Message]:
    return list(MESSAGES["TuningRecords"].FromString(data).modules)


def _read_tuning_record(data: bytes) -> list[Message]:
    return [MESSAGES["TuningRecord"].FromString(data)]


def _read_module(data: bytes) -> list[Message]:
    return [MESSAGES["TuningRecord"](module=MESSAGES["Module"].FromString(data))]


def _is_text(data: bytes) -> bool:
    begin = data[:TEXT_BYTES].decode(errors="replace").rstrip("\ufffd")  # the last one may be cut
    return "\ufffd" not in begin and all(
        sign.isprintable() or sign in "\n\r\t\ufeff" for sign in begin
    )


def _is_module(module: Any) -> bool:
    computations = module.computations
    return any(computation.instructions for computation in computations) and all(
        instruction.opcode for instruction in instructions(module)
    )


def check_sizes(module: Any, name: str) -> None:
    """Raise InputError where a tensor of a module has a dimension whose size is not known.

    A dimension with a bound has that for a size.
    """
    for instruction in instructions(module):
        if _has_unknown_size(instruction.shape):
            what = f"the {instruction.opcode} {instruction.name}".strip()
            if instruction.opcode == "parameter":
                what = f"parameter {instruction.parameter_number}"
            raise InputError(
                f"{name}: {what} has a dimension of unknown size. Export the program with fixed "
                "sizes."
            )


def _has_unknown_size(shape: Any) -> bool:
    return any(size < 0 for size in shape.dimensions) or any(
        _has_unknown_size(part) for part in shape.tuple_shapes
    )


def instructions(module: Any) -> Iterator[Any]:
    """The instructions of all computations; the place of one is the number of its node."""
    for computation in module.computations:
        yield from computation.instructions
