"""Folders that lie in a bucket (s3://, gs:// or whatever fsspec knows), and their copies here.

Everything works on a copy on this machine, a *mirror*: it is brought up to date before, and what
has changed is sent back. Beside the mirror stands NAME.mirror.json with the address and, file by
file, what stood on both sides when they were last equal. Who may read a bucket says the environment
(AWS_*, GOOGLE_APPLICATION_CREDENTIALS), never an address.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from solution.system.addresses import check_address, is_address, refuse_address_variable
from solution.system.errors import InputError
from solution.system.files import (
    TEMPORARY,
    locked,
    read_sealed,
    remove,
    replace_file,
    write_sealed,
)
from solution.system.transfers import Files, part, transfer_each

SIDECAR, WHAT = ".mirror.json", "the record of a mirror"

Facts = dict[str, list[Any]]  # by name: what stands in the bucket, and here


@contextmanager
def on_this_machine(
    given: str | Path, *, sends: bool = True, alone: bool = False
) -> Iterator[Path]:
    """The folder itself; of an address its mirror, whose changes are sent back at the end.

    Args:
        sends: whether anything is; what is only read stays as it is there.
        alone: keep other processes of this machine out of the mirror meanwhile.

    Raises InputError where an address that is only read cannot be, or has nothing.
    """
    if not is_address(str(given)):
        yield Path(given)
        return
    mirror = Mirror.of(str(given))
    with mirror.kept() if alone else nullcontext():
        mirror.pull(must_exist=not sends)
        try:
            yield mirror.folder
        except BaseException:
            if sends:
                with suppress(InputError):  # the first error is the one to show
                    mirror.push()
            raise
        if sends:
            mirror.push()


def find_mirrors() -> Path:
    """The folder of all mirrors."""
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    given = Path(os.environ.get("FASTSLOW_MIRRORS") or caches / "fast-or-slow" / "mirrors")
    return refuse_address_variable("FASTSLOW_MIRRORS", given)


def folder_of(given: str) -> Path:
    """The folder itself, or where the mirror of an address lies."""
    return Mirror.of(given).folder if is_address(given) else Path(given)


def send_back(folder: Path) -> None:
    """Send what has changed, if the folder is a mirror."""
    mirror = Mirror.find(folder)
    if mirror is not None:
        mirror.push()


@dataclass(frozen=True)
class Mirror:
    """The copy of a bucket's folder."""

    url: str
    folder: Path

    @classmethod
    def of(cls, url: str) -> "Mirror":
        """Where the mirror of an address lies.

        Raises InputError as check_address does.
        """
        trimmed = check_address(url).rstrip("/")
        mark = hashlib.sha256(trimmed.encode()).hexdigest()[:12]
        return cls(trimmed, find_mirrors() / f"{PurePosixPath(trimmed).name}-{mark}")

    @classmethod
    def find(cls, folder: Path) -> "Mirror | None":
        """Of which address the folder is the mirror, if it is one."""
        sidecar = _find_sidecar(folder)
        return cls(_read_sidecar(sidecar)["url"], folder) if sidecar.is_file() else None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep other processes of this machine out of it; InputError where one is in it."""
        guard = self.folder.with_name(f"{self.folder.name}.lock")
        guard.mkdir(parents=True, exist_ok=True)
        with locked(guard, f"Wait for what works on {self.url}."):
            yield

    def pull(self, *, must_exist: bool = False) -> None:
        """Bring the copy up to date; InputError where there is nothing that `must_exist`."""
        with self._naming():
            files = Files.of(self.url)
            found, known = files.list_versions(), self._recall()
            if must_exist and not found:
                raise InputError(f"{self.url}: there is no file. Look at the address.")
            changed = [
                name
                for name, version in found.items()
                if known.get(name) != [version, _describe(self.folder / name)]
            ]
            try:
                for names in part(changed):
                    for name in transfer_each(
                        partial(self._fetch, files), names, f"Fetching {self.url}"
                    ):
                        known[name] = [found[name], _describe(self.folder / name)]
                # What is only here was never sent; what was there and is gone, goes here as well.
                for name in known.keys() - found.keys():
                    remove(self.folder / name)
                    del known[name]
            finally:
                self._remember(known)

    def push(self, under: str = "") -> None:
        """Send what has changed here, all of it or what lies below a name."""
        with self._naming():
            files, known = Files.of(self.url), self._recall()
            if known and not self.folder.is_dir():  # else all would be deleted there as well
                raise InputError(f"{self.folder}: was removed meanwhile, so nothing is sent.")
            here = {
                path.relative_to(self.folder).as_posix(): path
                for path in (self.folder / under).rglob("*")
                if path.is_file() and TEMPORARY not in path.as_posix()
            }
            changed = [
                name
                for name, path in sorted(here.items())
                if known.get(name, [None, None])[1] != _describe(path)
            ]
            try:
                for names in part(changed):
                    list(
                        transfer_each(
                            partial(self._send, files, known), names, f"Sending {self.url}"
                        )
                    )
                for name in [name for name in known if _lies(name, under) and name not in here]:
                    files.remove(name)
                    del known[name]
            finally:
                self._remember(known)

    def _fetch(self, files: Files, name: str) -> None:
        with replace_file(self.folder / name) as temporary:
            files.fetch(name, temporary)

    def _send(self, files: Files, known: Facts, name: str) -> None:
        described = _describe(self.folder / name)
        known[name] = [files.send(self.folder / name, name), described]

    def _recall(self) -> Facts:
        sidecar = _find_sidecar(self.folder)
        if not sidecar.is_file():
            return {}
        known: Facts = _read_sidecar(sidecar)["files"]
        return known

    def _remember(self, known: Facts) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_sealed({"url": self.url, "files": known}, _find_sidecar(self.folder))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the bucket where it cannot be reached."""
        try:
            yield
        except InputError:
            raise
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise InputError(self._describe_error(error)) from error
            raise InputError(
                f"{self.folder}: no space left for the mirror of {self.url}. Make room, or set "
                "FASTSLOW_MIRRORS to a folder on another disk."
            ) from error
        except Exception as error:  # each service has errors of its own
            raise InputError(self._describe_error(error)) from error

    def _describe_error(self, error: Exception) -> str:
        return (
            f"{self.url}: cannot be reached or may not be used ({type(error).__name__}: {error}). "
            "Look at the address and at the rights that the environment gives."
        )


def _read_sidecar(path: Path) -> dict[str, Any]:
    try:
        return read_sealed(path, WHAT)
    except InputError as error:
        folder = path.with_name(path.name.removesuffix(SIDECAR))
        raise InputError(f"{error} Remove it and {folder}, both are made again.") from error


def _find_sidecar(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{SIDECAR}")


def _lies(name: str, under: str) -> bool:
    return not under or name == under or name.startswith(f"{under.rstrip('/')}/")


def _describe(path: Path) -> list[int] | None:
    """Size and time of change of a file here."""
    if not path.is_file():
        return None
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
