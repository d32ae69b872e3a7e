"""Keep a mirror: a copy on this machine of a folder in a bucket.

NAME.mirror.json beside the mirror records the address and, for each file, the version on both sides
when they were last equal. From this it follows which files have changed here, in the bucket, or on
both sides. If both sides changed, the bucket's version is kept.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from solution.system.addresses import check_address, find_service, refuse_address_variable
from solution.system.errors import InputError
from solution.system.files import (
    TEMPORARY,
    check_writable,
    checksum,
    locked,
    make_folder,
    read_sealed,
    remove_with_emptied,
    replace_file,
    write_sealed,
)
from solution.system.names import place_below
from solution.system.refusals import FULL
from solution.system.transfers import RECORDS, Files, is_record, lies_under, part, transfer_each
from solution.system.wording import count

SIDECAR, WHAT = ".mirror.json", "the record of a mirror"

Facts = dict[str, list[Any]]  # by file name: [version in the bucket, size and time of change here]


class MirrorError(InputError):
    """An error of a mirror or its bucket; the message names them."""


def find_mirrors() -> Path:
    """Return the folder that contains all mirrors."""
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    given = Path(os.environ.get("FASTSLOW_MIRRORS") or caches / "fast-or-slow" / "mirrors")
    return refuse_address_variable("FASTSLOW_MIRRORS", given)


@dataclass(frozen=True)
class Mirror:
    """The local copy of a folder in a bucket."""

    url: str
    folder: Path

    @classmethod
    def of(cls, url: str) -> "Mirror":
        """Return the mirror of an address; equal addresses on two servers have two mirrors.

        Raises InputError as check_address does.
        """
        trimmed = check_address(url).rstrip("/")
        mark = hashlib.sha256(f"{find_service(trimmed)}{trimmed}".encode()).hexdigest()[:12]
        return cls(trimmed, find_mirrors() / f"{PurePosixPath(trimmed).name}-{mark}")

    @classmethod
    def find(cls, folder: Path) -> "Mirror | None":
        """Return the mirror whose local folder this is; None if the folder is no mirror."""
        sidecar = _find_sidecar(folder)
        return cls(_read_sidecar(sidecar)["url"], folder) if sidecar.is_file() else None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Lock the mirror against other processes of this machine; InputError if another one has
        it."""
        guard = self.folder.with_name(f"{self.folder.name}.lock")
        self._check_place(guard)
        with locked(guard, f"Wait for what works on {self.url}."):
            yield

    def pull(self, *, must_exist: bool = False) -> None:
        """Download what has changed in the bucket.

        Args:
            must_exist: raise InputError if the bucket has no files at the address.

        Raises InputError also if files that were known have disappeared from the bucket.
        """
        self._check_place(self.folder.parent)
        with self._naming():
            files = Files.of(self.url)
            found, known = files.list_versions(), self._recall()
            self._check_there(found, known)
            if must_exist and not found:
                raise InputError(f"{self.url}: there is no file. Look at the address.")
            changed = [
                name
                for name, version in found.items()
                if known.get(name) != [version, _describe(self.folder / name)]
            ]
            try:
                for names in part(changed):
                    fetching = transfer_each(
                        partial(self._fetch, files), names, f"Fetching {self.url}"
                    )
                    for name in fetching:
                        known[name] = [found[name], _describe(self.folder / name)]
                # Files that are unknown to the record were never uploaded and stay. Files deleted
                # in the bucket are deleted here too.
                for name in known.keys() - found.keys():
                    remove_with_emptied(self.folder / name, self.folder)
                    del known[name]
            finally:
                self._remember(known)

    def push(self, under: str = "", *, over: bool = False) -> None:
        """Upload what has changed here, or only the part below the name `under`.

        Args:
            over: overwrite files that another machine has uploaded meanwhile.

        Raises InputError before anything is uploaded if another machine has uploaded such files.
        Buckets have no locks: two machines that check at the same moment may both write.
        """
        with self._naming():
            files, known = Files.of(self.url), self._recall()
            # otherwise all files would be deleted in the bucket, too
            if known and not self.folder.is_dir():
                raise MirrorError(f"{self.folder}: was removed meanwhile, so nothing is sent.")
            here = self._list_here(under)
            changed = [
                name
                for name, path in sorted(here.items())
                if known.get(name, [None, None])[1] != _describe(path)
            ]
            try:
                if changed and not over:
                    changed = self._leave_others(files, known, changed, under)
                for names in part(changed):
                    sending = partial(self._send, files, known)
                    list(transfer_each(sending, names, f"Sending {self.url}"))
                for name in [
                    name for name in known if lies_under(name, under) and name not in here
                ]:
                    files.remove(name)
                    del known[name]
            finally:
                self._remember(known)

    def _check_there(self, found: dict[str, str], known: Facts) -> None:
        """Raise InputError if known files have disappeared; otherwise they would be deleted here
        too."""
        # A bucket that was emptied during a run contains only files uploaded since, so records are
        # checked as well.
        gone = [name for name in known if name in RECORDS and name not in found]
        if gone or (known and not found):
            lost = f"no {gone[0]}" if found else "none"
            raise MirrorError(
                f"{self.url}: expected the {count(len(known), 'file')} that stood there, found "
                f"{lost}. Nothing is deleted in {self.folder}. Look "
                f"at the bucket. Where it was emptied, remove {_find_sidecar(self.folder)}, and "
                "what is here is sent again; remove the folder as well to begin anew."
            )

    def _list_here(self, under: str) -> dict[str, Path]:
        return {
            path.relative_to(self.folder).as_posix(): path
            for path in (self.folder / under).rglob("*")
            if path.is_file() and TEMPORARY not in path.as_posix()
        }

    def _leave_others(
        self, files: Files, known: Facts, changed: Sequence[str], under: str
    ) -> list[str]:
        """Return the changed files to upload; leave out those that are equal in the bucket.

        Raises InputError if another machine has overwritten one of them, or a record of files that
        are here, since both sides were last equal. The bucket is listed once, not queried for each
        file.
        """
        there = files.list_versions(under)
        if not under:
            self._check_there(there, known)
        records = [
            name
            for name in known
            if is_record(name) and lies_under(name, under) and (self.folder / name).is_file()
        ]
        moved = [
            name
            for name in sorted({*changed, *records})
            if (name in there or name in records)
            and not self._is_as_known(files, name, there.get(name), known)
        ]
        for name in self._find_same(files, [name for name in moved if name in there]):
            known[name] = [there[name], _describe(self.folder / name)]
            moved.remove(name)
        if moved:
            more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
            raise MirrorError(
                f"{self.url}: another machine has written {moved[0]}{more} there since this one "
                "looked. What stands there stays, and is not written over; what was made here is "
                f"kept in {self.folder}. When the other one is done, give the same command again: "
                "it fetches what is there and goes on. Or give another address."
            )
        return [
            name
            for name in changed
            if known.get(name, [None, None])[1] != _describe(self.folder / name)
        ]

    def _is_as_known(self, files: Files, name: str, version: str | None, known: Facts) -> bool:
        """Return whether a file in the bucket is unchanged since both sides were last equal.

        Some services report another version in a list than for a single file, so both are compared.

        Args:
            version: the version in the list; None if the file is not in it.
        """
        remembered = known.get(name, [None])[0]
        if version is None or remembered is None:
            return bool(version == remembered)
        return version == remembered or files.ask_version(name) == remembered

    def _find_same(self, files: Files, names: Sequence[str]) -> list[str]:
        """Return the files with equal bytes on both sides, such as if two machines made the same
        file."""
        if not names:
            return []
        with TemporaryDirectory(prefix=TEMPORARY, dir=self.folder.parent) as scratch:
            copies = {name: Path(scratch) / str(number) for number, name in enumerate(names)}
            comparing = f"Comparing {self.url}"
            list(transfer_each(lambda name: files.fetch(name, copies[name]), names, comparing))
            return [n for n in names if checksum(copies[n]) == checksum(self.folder / n)]

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
        for name in known:
            place_below(self.folder, name, sidecar)
        return known

    def _remember(self, known: Facts) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_sealed({"url": self.url, "files": known}, _find_sidecar(self.folder))

    def _check_place(self, folder: Path) -> None:
        """Make a folder for mirrors; raise InputError, which names FASTSLOW_MIRRORS, if that
        fails."""
        try:
            make_folder(folder)
            check_writable(folder)
        except (InputError, OSError) as error:
            raise MirrorError(
                f"{error} The mirrors of buckets are kept in {self.folder.parent}: set "
                "FASTSLOW_MIRRORS to another folder."
            ) from error

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn errors in the block into a MirrorError that names the bucket, or the local file."""
        try:
            yield
        except InputError:
            raise
        except OSError as error:
            if error.errno not in FULL and not self._is_here(error.filename):
                raise MirrorError(self._describe_error(error)) from error
            raise MirrorError(
                f"{error.filename or self.folder}: cannot be kept ({error.strerror}), in the "
                f"mirror of {self.url}. Make room, or set FASTSLOW_MIRRORS to a folder of yours on "
                "another disk."
            ) from error
        except Exception as error:  # each service has its exceptions
            raise MirrorError(self._describe_error(error)) from error

    def _is_here(self, name: object) -> bool:
        """Return whether `name` is a file in the folder of mirrors."""
        return isinstance(name, str) and Path(name).is_relative_to(self.folder.parent)

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


def _describe(path: Path) -> list[int] | None:
    """Return size and time of change (ns) of a local file; None if it does not exist."""
    if not path.is_file():
        return None
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
