"""Replies arrive as they were sent; bytes that are no reply are refused."""

from multiprocessing import Pipe
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from solution.programs.child import Refusal
from solution.programs.replies import MARK, SIZE_BYTES, decode_reply, send_reply

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
SMALL = (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4)
TYPES = st.sampled_from([*map(np.dtype, ("?", "i1", "u8", "f2", "f8", "c16")), *SMALL])
REFUSALS = st.builds(Refusal, st.text(), st.booleans())


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st_numpy.array_shapes(min_dims=0, min_side=0, max_side=3))
    return (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(draw(TYPES))


REPLIES = st.recursive(PLAIN | st.binary() | arrays() | REFUSALS, st.lists, max_leaves=6)


@given(REPLIES)
def test_a_reply_arrives_as_it_was_sent(reply: Any) -> None:
    reading, writing = Pipe(duplex=False)
    with reading, writing:
        send_reply(writing, reply)
        content = reading.recv_bytes()
    assert content.startswith(MARK)
    check_equal(decode_reply(bytearray(content[len(MARK) :])), reply)


def check_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes() and found.flags.writeable
    else:
        assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "{", "{}", "[" * 100_000, '{"reply": "Child", "fields": []}', '{"bytes": "8"}',
        '{"reply": "Refusal", "fields": 3}', '{"array": ["O"], "shape": [1], "bytes": 8}',
        '{"array": "object", "shape": [1], "bytes": 8}',
        '{"array": "O,i4", "shape": [1], "bytes": 12}',
        '{"array": "float32", "shape": [9], "bytes": 8}',
    ],
)  # fmt: skip
def test_what_is_no_reply_is_refused(text: str) -> None:
    content = len(text).to_bytes(SIZE_BYTES) + text.encode() + bytes(16)
    with pytest.raises(ValueError, match="no reply"):
        decode_reply(bytearray(content))
