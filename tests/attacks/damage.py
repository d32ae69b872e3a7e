"""Damage to one file of several, by its name: what a single attack does to it."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.attacks import mutations

SECRET = "a token of somebody"


def flip(place: float) -> Callable[[Path], None]:
    """One bit, at this share of the file."""

    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 4
        path.write_bytes(content)

    return change


def cut(share: float) -> Callable[[Path], None]:
    """All but this share; but for a single byte where it is 1."""
    return lambda path: os.truncate(path, min(int(share * path.stat().st_size),
                                              path.stat().st_size - 1))  # fmt: skip


def extend(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


def link_to_a_secret(path: Path) -> None:
    """To a file of somebody else."""
    secret = path.parents[-3] / f"secret-{os.getpid()}"
    secret.write_text(SECRET)
    path.unlink()
    path.symlink_to(secret)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "first byte": flip(0),
    "early byte": flip(0.1),
    "middle byte": flip(0.5),
    "late byte": flip(0.9),
    "last byte": flip(1),
    "cut by a byte": cut(1),
    "cut in half": cut(0.5),
    "empty": mutations.empty,
    "extended": extend,
    "deleted": mutations.delete,
    "folder": mutations.put_folder,
    "pipe": mutations.put_pipe,
    "endless": mutations.link_to_endless,
    "link to nothing": mutations.link_to_nothing,
    "link to itself": mutations.link_to_itself,
    "terabyte": mutations.make_sparse,
}
