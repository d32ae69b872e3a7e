"""Damage to files, drawn by a seed: to their bytes, and to what stands in their place."""

import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.made.hostile import put_device, put_folder, put_pipe

HUGE_VARINTS = (b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\xff\xff\xff\xff\x07", b"\x80" * 20)
HUGE_LENGTHS = tuple(
    (2**power - less).to_bytes(size, "little")
    for size, powers in ((2, (15, 16)), (4, (31, 32)), (8, (31, 40, 62, 63, 64)))
    for power in powers
    for less in (0, 1)
    if 2**power - less < 2 ** (8 * size)
)
HUGE_NUMBERS = (b"99999999999999999999", b"-1", b"1e400", b"NaN", b"0.5", b'""', b"null")
DIGIT = re.compile(rb"[0-9]")
ENDS = 96  # bytes at both ends, where headers and directories are
SPARSE_BYTES = 1 << 40  # of a file that takes no room


def flip_bits(content: bytearray, generator: random.Random) -> bytearray:
    for _ in range(generator.choice((1, 1, 1, 2, 8))):
        content[_place(content, generator)] ^= 1 << generator.randrange(8)
    return content


def set_bytes(content: bytearray, generator: random.Random) -> bytearray:
    for _ in range(generator.choice((1, 1, 2, 4))):
        value = generator.choice((0, 0xFF, 0x80, 0x7F, 0x0A, 0x22, generator.randrange(256)))
        content[_place(content, generator)] = value
    return content


def cut(content: bytearray, generator: random.Random) -> bytearray:
    few = generator.randrange(min(len(content), 64) + 1)
    return content[: generator.choice((few, len(content) - few, generator.randrange(len(content))))]


def extend(content: bytearray, generator: random.Random) -> bytearray:
    count = generator.choice((1, 7, 512))
    return content + generator.choice((bytes(count), generator.randbytes(count), content[:count]))


def repeat_part(content: bytearray, generator: random.Random) -> bytearray:
    first, last = _part(content, generator)
    return content[:last] + content[first:last] * generator.choice((1, 2, 50)) + content[last:]


def delete_part(content: bytearray, generator: random.Random) -> bytearray:
    first, last = _part(content, generator)
    return content[:first] + content[last:]


def clear_part(content: bytearray, generator: random.Random) -> bytearray:
    first, last = _part(content, generator)
    return content[:first] + bytes(last - first) + content[last:]


def swap_parts(content: bytearray, generator: random.Random) -> bytearray:
    one, two, three = sorted(generator.randrange(len(content) + 1) for _ in range(3))
    return content[:one] + content[two:three] + content[one:two] + content[three:]


def put_huge(content: bytearray, generator: random.Random) -> bytearray:
    """A length or a number without measure over what is there, or between."""
    place = _place(content, generator)
    huge = generator.choice(generator.choice((HUGE_VARINTS, HUGE_LENGTHS, HUGE_NUMBERS)))
    return content[:place] + huge + content[place + generator.choice((0, len(huge))) :]


def replace_number(content: bytearray, generator: random.Random) -> bytearray:
    """One of the digits of a text: the next one from anywhere."""
    digit = DIGIT.search(content, _place(content, generator)) or DIGIT.search(content)
    if digit is None:
        return flip_bits(content, generator)
    place = digit.start()
    return content[:place] + generator.choice(HUGE_NUMBERS) + content[place + 1 :]


CHANGES: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    flip_bits, flip_bits, set_bytes, cut, extend, repeat_part, delete_part, clear_part, swap_parts,
    put_huge, replace_number,
)  # fmt: skip


def mutate(content: bytes, seed: int, others: Sequence[bytes]) -> tuple[str, bytes]:
    """What was done, and the mutated content; `others` are files that pieces are taken from.

    What leaves every byte as it is, as zeros in the place of zeros, is drawn anew.
    """
    generator = random.Random(seed)
    done, mutated = "", content
    while mutated == content:
        done, mutated = _mutate_once(content, generator, others)
    return done, mutated


def _mutate_once(
    content: bytes, generator: random.Random, others: Sequence[bytes]
) -> tuple[str, bytes]:
    if generator.random() < 0.08:
        return "splice", _splice(content, generator.choice(others), generator)
    change = generator.choice(CHANGES)
    names, mutated = [change.__name__], change(bytearray(content), generator)
    if mutated and generator.random() < 0.15:
        change = generator.choice(CHANGES)
        names.append(change.__name__)
        mutated = change(mutated, generator)
    return "+".join(names), bytes(mutated)


def _splice(content: bytes, other: bytes, generator: random.Random) -> bytes:
    place, begin = generator.randrange(len(content) + 1), generator.randrange(len(other) + 1)
    piece = other[begin : begin + generator.choice((16, 200, len(other)))]
    return content[:place] + piece + content[place + generator.choice((0, len(piece))) :]


def _place(content: bytearray, generator: random.Random) -> int:
    """Anywhere, and more often near an end."""
    count = len(content)
    near = min(count, ENDS)
    anywhere, first, last = (generator.randrange(most) for most in (count, near, near))
    return generator.choice((anywhere, first, count - 1 - last))


def _part(content: bytearray, generator: random.Random) -> tuple[int, int]:
    first = _place(content, generator)
    return first, min(len(content), first + generator.choice((1, 4, 32, 1000)))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def lock_up(path: Path) -> None:
    """Nobody may read it; the reader is not root."""
    path.chmod(0)


def make_sparse(path: Path) -> None:
    """A terabyte that takes no room."""
    os.truncate(path, SPARSE_BYTES)


REPLACEMENTS: tuple[Callable[[Path], None], ...] = (
    Path.unlink, empty, put_pipe, put_folder, put_device, link_to_nothing, link_to_itself, lock_up,
    make_sparse,
)  # fmt: skip
