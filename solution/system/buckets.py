"""Work on folders in a bucket (s3://, gs:// or any other scheme of fsspec) through local copies.

Every command works on a local copy, a *mirror*. It is updated before the work, and changed files
are uploaded afterwards. NAME.mirror.json beside it records each file's remote version, local size
and local time of change when both sides were last equal (the `Facts`). A file has changed on a side
whose facts differ from the record.
Credentials come from the environment (AWS_*, GOOGLE_APPLICATION_CREDENTIALS), not from addresses.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from solution.system import files, names
from solution.system.errors import InputError
from solution.system.refusals import FULL
from solution.system.wording import count, how_to_install, join_names

# environment variables with the server of s3:// addresses; the first that is set is used
SERVERS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# keys in fsspec's description of a file; their values together identify the file's version
VERSION = ("ETag", "etag", "md5Hash", "crc32c", "mtime", "created")
# records whose presence tells that the other files of a folder are complete; uploaded last
RECORDS = ("store.json", "run.json", "job.json")
AT_ONCE, MANY = 16, 50  # parallel transfers; more than MANY files get a progress bar
Facts = dict[str, list[Any]]  # by file name: [remote version, [local size, time of change in ns]]


@dataclass(frozen=True)
class Mirror:
    """The local copy of a folder in a bucket."""

    url: str
    folder: Path

    @classmethod
    def of(cls, url: str) -> "Mirror":
        """Return the mirror of an address; s3:// addresses have a separate mirror per server."""
        url = names.check_address(url).rstrip("/")
        servers = [os.environ.get(name, "") for name in SERVERS if url.startswith("s3://")]
        server = next(filter(None, servers), "").rstrip("/")
        mark = hashlib.sha256(f"{server}{url}".encode()).hexdigest()[:12]
        mirrors = names.cache_of_variable("FASTSLOW_MIRRORS", "mirrors")
        try:
            files.check_writable(mirrors)
        except (InputError, OSError) as error:
            advice = f"The mirrors of buckets are kept in {mirrors}: set FASTSLOW_MIRRORS anew."
            raise InputError(f"{error} {advice}") from error
        return cls(url, mirrors / f"{PurePosixPath(url).name}-{mark}")

    @classmethod
    def find(cls, folder: Path) -> "Mirror | None":
        """Return the mirror with this local folder; None if the folder is no mirror."""
        mirror = cls("", folder)
        return cls(mirror._recall()["url"], folder) if mirror._sidecar.is_file() else None

    def pull(self, *, must_exist: bool = False) -> None:
        """Download files that have changed in the bucket; delete local copies of files that were
        deleted in the bucket. Local files that were never uploaded are kept. Raises InputError as
        `_list` does, or if the bucket has no file although `must_exist` is set."""
        with self._opened() as (bucket, known):
            remote = self._list(bucket, known)
            if must_exist and not remote:
                raise InputError(f"{self.url}: there is no file. Look at the address.")
            self.folder.mkdir(parents=True, exist_ok=True)

            def fetch(name: str) -> None:
                with files.replace_file(self.folder / name) as temporary:
                    bucket.get_file(name, str(temporary))
                known[name] = [remote[name], self._describe(name)]

            changed = [n for n in remote if known.get(n) != [remote[n], self._describe(n)]]
            _transfer(fetch, changed, f"Fetching {self.url}")
            for name in known.keys() - remote.keys():
                files.remove_with_emptied(self.folder / name, self.folder)
                del known[name]

    def push(self, under: str = "", *, over: bool = False) -> None:
        """Upload changed local files below `under`; delete remote files whose local copies were
        deleted. Unless `over`, raise InputError if another machine has meanwhile uploaded one of
        the changed files, or changed one of the RECORDS."""
        with self._opened() as (bucket, known):
            if known and not self.folder.is_dir():  # stop, or all remote files would be deleted
                raise InputError(f"{self.folder}: was removed meanwhile, so nothing is sent.")
            found = sorted((self.folder / under).rglob("*"))
            named = (str(path.relative_to(self.folder)) for path in found if path.is_file())
            here = {name: self._describe(name) for name in named if files.TEMPORARY not in name}
            changed = [name for name in here if known.get(name, [None, None])[1] != here[name]]
            if changed and not over:
                remote = self._list(bucket, known, under)
                written = [name for name in changed if name in remote]
                records = [n for n in here if n in known and PurePosixPath(n).name in RECORDS]
                facts = {name: [remote.get(name), here[name]] for name in (*written, *records)}
                equal = self._check_others(bucket, known, facts)
                changed = [name for name in changed if name not in equal]

            def send(name: str) -> None:
                bucket.makedirs(str(PurePosixPath(name).parent), exist_ok=True)
                bucket.put_file(str(self.folder / name), name)
                bucket.invalidate_cache(name)
                known[name] = [_name_version(bucket.info(name)), here[name]]

            _transfer(send, changed, f"Sending {self.url}")
            gone = known.keys() - here.keys()
            for name in [name for name in gone if PurePosixPath(name).is_relative_to(under)]:
                with suppress(FileNotFoundError):
                    bucket.rm_file(name)
                del known[name]

    def _check_others(self, bucket: Any, known: Facts, facts: Facts) -> list[str]:
        """Raise InputError if a file's remote version in `facts` differs from that in `known`.
        Files with equal bytes on both sides are no conflict: they are added to `known`, and
        returned. Buckets have no locks: two machines that check at one moment may both write."""
        moved = [name for name in facts if facts[name][0] != known.get(name, [None])[0]]

        def compare(name: str) -> None:
            if bucket.cat_file(name) == (self.folder / name).read_bytes():
                known[name] = facts[name]

        _transfer(compare, [n for n in moved if facts[n][0]], f"Comparing {self.url}")
        others = [name for name in moved if known.get(name) != facts[name]]
        if others:
            raise InputError(
                f"{self.url}: another machine has written {join_names(others, 1)} meanwhile. "
                f"Nothing was sent; local results are kept in {self.folder}. When it is done, give "
                "the same command again, which fetches its files; or give another address."
            )
        return moved

    def _list(self, bucket: Any, known: Facts, under: str = "") -> dict[str, str]:
        """Return, by name, the version of each remote file below `under`. Raises InputError if all
        known files or one of the RECORDS are gone: the caller would delete the local copies."""
        bucket.invalidate_cache()
        found = bucket.find(under, detail=True).items()
        # a path that ends with a slash marks an empty folder
        named = ((str(PurePosixPath(path)), info) for path, info in found if path[-1:] != "/")
        remote = {name: _name_version(info) for name, info in named}
        for name in filter(names.leads_out, remote):
            raise InputError(f"{self.url}: has a file called {name!r}, which leads out of it.")
        gone = [name for name in known if name in RECORDS and name not in remote]
        if not under and (gone or (known and not remote)):
            raise InputError(
                f"{self.url}: expected the {count(len(known), 'file')} that stood there, found "
                f"{f'no {gone[0]}' if remote else 'none'}. Nothing is deleted in {self.folder}. To "
                f"send its files again, remove {self._sidecar}; to begin anew, remove both."
            )
        return remote

    @property
    def _sidecar(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.mirror.json")

    def _recall(self) -> dict[str, Any]:
        try:
            return files.read_sealed(self._sidecar, "the record of a mirror")
        except InputError as error:
            raise InputError(
                f"{error} Remove it and {self.folder}: both are made again."
            ) from error

    def _describe(self, name: str) -> list[int] | None:
        """Return size and time of change (ns) of a local file; None if it does not exist."""
        path = self.folder / name
        return [path.stat().st_size, path.stat().st_mtime_ns] if path.is_file() else None

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Facts]]:
        """Yield fsspec's file system of the bucket's folder, and the Facts, which are stored
        afterwards. Errors become an InputError that names the bucket, or the local file."""
        try:
            from fsspec.core import url_to_fs  # fsspec comes only with an extra of this package
            from fsspec.implementations.dirfs import DirFileSystem

            system, root = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            how = f"Buckets need an extra. {how_to_install('cluster')} (for gs:// gcsfs as well)."
            raise InputError(f"{self.url}: {error}. {how}") from error
        known: Facts = self._recall()["files"] if self._sidecar.is_file() else {}
        for name in known:
            names.place_below(self.folder, name, self._sidecar)
        try:
            try:
                yield DirFileSystem(root, system), known
            finally:
                if self.folder.is_dir():
                    files.write_sealed({"url": self.url, "files": known}, self._sidecar)
        except InputError:
            raise
        except Exception as error:  # each service raises other classes of exceptions
            path = getattr(error, "filename", None)
            is_here = isinstance(path, str) and Path(path).is_relative_to(self.folder.parent)
            if isinstance(error, OSError) and (error.errno in FULL or is_here):
                words = f"{path or self.folder}: cannot be kept ({error.strerror}), in the mirror"
                advice = "Make room, or set FASTSLOW_MIRRORS to a folder on another disk."
                raise InputError(f"{words} of {self.url}. {advice}") from error
            words = f"cannot be reached or may not be used ({type(error).__name__}: {error})"
            advice = "Look at the address and at the rights that the environment gives."
            raise InputError(f"{self.url}: {words}. {advice}") from error


def _transfer(work: Callable[[str], None], wanted: Sequence[str], doing: str) -> None:
    """Call `work(name)` for each name, several in parallel; RECORDS come after all other files."""
    from solution.system.progress import track  # imports rich, too slow for ranking one file

    shown = track(wanted, doing) if len(wanted) > MANY else nullcontext(iter(wanted))
    with ThreadPoolExecutor(AT_ONCE) as pool, shown as items:
        for final in (False, True):
            part = [n for n in wanted if (PurePosixPath(n).name in RECORDS) is final]
            list(zip(pool.map(work, part), items, strict=False))  # raises what `work` raised


def _name_version(info: dict[str, Any]) -> str:
    return str([str(info[key]) for key in (*VERSION, "size") if key in info])


@contextmanager
def on_this_machine(
    given: str | Path, *, sends: bool = True, alone: bool = False
) -> Iterator[Path]:
    """Yield the local folder to work in: `given` itself, or a bucket's mirror, updated before the
    block and uploaded afterwards. Unless `sends`, the bucket is only read, and must have files.
    `alone`: lock the mirror against other processes of this machine."""
    if not names.is_address(str(given)):
        yield Path(given)
        return
    mirror = Mirror.of(str(given))
    guard = mirror.folder.with_name(f"{mirror.folder.name}.lock")
    guard.mkdir(parents=True, exist_ok=True)
    with files.locked(guard, f"Wait for what works on {mirror.url}.") if alone else nullcontext():
        mirror.pull(must_exist=not sends)
        try:
            yield mirror.folder
        except BaseException as error:
            if sends:
                with suppress(InputError):  # an error of push must not hide the first error
                    mirror.push()
            if type(error) is not InputError:  # errors of subclasses name the bucket already
                raise
            raise InputError(str(error).replace(str(mirror.folder), mirror.url)) from error
        if sends:
            mirror.push()


def send_back(folder: Path, under: str = "") -> None:
    """Upload changed files (only those below `under`) if the folder is the mirror of a bucket."""
    if mirror := Mirror.find(folder):
        mirror.push(under)
