"""Send a child's replies as JSON and raw bytes.

A user's program, which may be hostile, runs in the child and can write to its connection. Decoding
a reply never runs code, whatever its bytes are; unpickling could run any code.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

MARK = b"fastslow reply:"  # the first bytes of every reply, before the size of its JSON
SIZE_BYTES = 8  # bytes that hold the size of the JSON


class Reply:
    """The base class of dataclasses that a child may send as replies, or inside replies."""


def send_reply(connection: Connection, value: Any) -> None:
    """Send None, a bool, number, str, bytes, array of this machine's byte order, Reply, or lists of
    these (tuples arrive as lists)."""
    blocks: list[bytes] = []
    text = json.dumps(_to_json(value, blocks)).encode()
    connection.send_bytes(b"".join((MARK, len(text).to_bytes(SIZE_BYTES), text, *blocks)))


def _to_json(value: Any, blocks: list[bytes]) -> Any:
    """Return the value in JSON's types; append the bytes and arrays in it to `blocks`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):  # a number of numpy's
        return value.item()
    if isinstance(value, bytes):
        blocks.append(value)
        return {"bytes": len(value)}
    if isinstance(value, np.ndarray):
        blocks.append(value.tobytes())
        return {"array": value.dtype.name, "shape": value.shape, "bytes": value.nbytes}
    if isinstance(value, list | tuple):
        return [_to_json(item, blocks) for item in value]
    assert isinstance(value, Reply), type(value)
    values = [_to_json(getattr(value, field.name), blocks) for field in fields(value)]  # type: ignore[arg-type]
    return {"reply": type(value).__name__, "fields": values}


def decode_reply(content: bytearray) -> Any:
    """Return the value that was sent, from the bytes after MARK; its arrays share the memory of
    `content`. Raises ValueError if the bytes are no reply."""
    try:
        begin = SIZE_BYTES + int.from_bytes(content[:SIZE_BYTES])
        rest = memoryview(content)[begin:]

        def take(count: int) -> memoryview:
            nonlocal rest
            taken, rest = rest[:count], rest[count:]
            return taken

        return _from_json(json.loads(content[SIZE_BYTES:begin]), take)
    except (ValueError, TypeError, KeyError, AttributeError, ImportError, RecursionError) as error:
        raise ValueError("no reply") from error


def _from_json(value: Any, take: Callable[[int], memoryview]) -> Any:
    """Convert back a value that `_to_json` returned. `take(count)` returns the next `count` bytes
    after the JSON, which hold the arrays and bytes objects."""
    if isinstance(value, list):
        return [_from_json(item, take) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        # frombuffer raises ValueError for numpy's type `object`, whose bytes would be pointers
        numbers = np.frombuffer(take(value["bytes"]), find_type(value["array"]))
        return numbers.reshape(value["shape"])
    if "bytes" in value:
        return bytes(take(value["bytes"]))
    kinds = {kind.__name__: kind for kind in Reply.__subclasses__()}
    return kinds[value["reply"]](*_from_json(value["fields"], take))


def find_type(name: str) -> np.dtype[Any]:
    """Return the type with this name: numpy's or, for names such as bfloat16, ml_dtypes'. Raises
    AttributeError if there is none."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # installed with jax

        return np.dtype(getattr(ml_dtypes, name))
