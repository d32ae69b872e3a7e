"""Inflate one large member of a zip file, faster than zipfile and at most a few blocks ahead.

A download of 6 GB inflates to over 240 GB, and inflating takes most of the time of reading. ISA-L
is two to three times as fast as zlib and has the same interface; if it is not installed, zlib is
used. Both release the interpreter's lock, so the next block is inflated while the current one is
processed.
"""

import struct
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

try:
    from isal import isal_zlib as zlib
except ImportError:  # isal is not installed, such as on a Kaggle kernel without internet
    import zlib  # type: ignore[no-redef]

INPUT_BYTES = 1 << 18  # compressed bytes that are read at a time
RAW_DEFLATE = -15  # zlib's `wbits` for data without a zlib header, as in a zip file
# A member's header. Its last two fields are the lengths of the name and of the extra field.
LOCAL_HEADER = struct.Struct("<4s5H3L2H")


class DeflatedMember:
    """The inflated content of a zip member as a readable file; its checksum is checked at the end.
    If it is damaged, reading raises BadZipFile, EOFError or the inflater's error."""

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        archive.open(member).close()  # checks the member's header, and rejects encrypted members
        assert archive.fp is not None
        self._file = archive.fp
        self._file.seek(member.header_offset)
        *_, name, extra = LOCAL_HEADER.unpack(self._file.read(LOCAL_HEADER.size))
        self._position = member.header_offset + LOCAL_HEADER.size + name + extra
        self._member = member
        self._left = member.compress_size  # compressed bytes that are not read yet
        self._inflater = zlib.decompressobj(RAW_DEFLATE)
        self._missing = member.file_size  # inflated bytes that are not returned yet
        self._checksum = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return the next `size` bytes, or all if `size` is negative; fewer only at the end."""
        parts = []
        size = self._missing if size < 0 else size
        while size > 0 and not self._inflater.eof:
            data = self._input()
            part = self._inflater.decompress(data, size)
            if not data and not part:
                raise EOFError(f"{self._member.filename} ends early")
            parts.append(part)
            size -= len(part)
        content = b"".join(parts)
        self._checksum = zlib.crc32(content, self._checksum)
        self._missing -= len(content)
        is_over = self._inflater.eof or self._missing <= 0  # a damaged stream may lack its end mark
        if is_over and self._checksum != self._member.CRC:
            raise zipfile.BadZipFile(f"bad checksum of {self._member.filename}")
        return content

    def _input(self) -> bytes:
        waiting = self._inflater.unconsumed_tail
        if waiting:
            return waiting
        self._file.seek(self._position)
        data = self._file.read(min(INPUT_BYTES, self._left))
        self._position += len(data)
        self._left -= len(data)
        return data


def read_ahead(read: Callable[[int], bytes], sizes: list[int]) -> Iterator[bytes]:
    """Yield read(size) for each of `sizes`; a thread reads the next result while one is used."""
    with ThreadPoolExecutor(1) as pool:
        waiting = None
        for size in sizes:
            following = pool.submit(read, size)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
