"""Work on folders in a bucket (s3://, gs:// or any other scheme of fsspec) through local copies.

Every command works on a copy on this machine, a *mirror*. It is updated before the work, and
changed files are uploaded afterwards. NAME.mirror.json beside the mirror records, for each file,
the version on both sides when they were last equal; it tells which side has changed. Credentials
come from the environment (AWS_*, GOOGLE_APPLICATION_CREDENTIALS), never from an address.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from solution.system.errors import InputError
from solution.system.files import (
    TEMPORARY,
    check_writable,
    locked,
    make_folder,
    read_sealed,
    remove_with_emptied,
    replace_file,
    write_sealed,
)
from solution.system.names import leads_out, place_below
from solution.system.refusals import FULL
from solution.system.wording import count, how_to_install

# Names like these are hardly ever local; a local folder with such a name is given as ./NAME.
LIKE_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/|(s3|gs):", re.IGNORECASE)
WITHOUT_BUCKET = ("file", "local", "memory")  # schemes of fsspec whose paths begin with a slash
COPY = {"s3": "aws s3 sync", "gs": "gcloud storage rsync --recursive"}
SERVERS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # of s3://; the first that is set counts
VERSION = ("ETag", "etag", "md5Hash", "crc32c", "mtime", "created")  # names in several services
RECORDS = ("store.json", "run.json", "job.json")  # say that other files are complete, so come last
AT_ONCE, MANY = 16, 50  # transfers in parallel; a progress bar is shown for more files than this

Facts = dict[str, list[Any]]  # by file name: [version in the bucket, size and time of change here]


def is_address(given: str) -> bool:
    """Return whether the text is the address of a folder in a bucket, not a local folder."""
    return re.match(r"[a-z][a-z0-9+.-]+://", given) is not None


def _split(given: str) -> tuple[str, str]:
    """Return scheme and rest of what is or looks like an address; empty texts otherwise."""
    looks, rest = LIKE_ADDRESS.match(given), re.sub(r"^[^:]+:/*", "", given)
    if looks is not None and "@" in rest.split("/")[0]:
        raise InputError("The address of a bucket holds a password. Give it in the environment.")
    return ((looks[1] or looks[2]).lower(), rest or "BUCKET/NAME") if looks else ("", "")


def check_address(given: str, *, named: bool = False) -> str:
    """Return `given` if it is a local folder or a valid address; else raise InputError.

    A misspelt address would be taken for a local folder, and written to without any message.

    Args:
        named: require a name below the bucket, because something is written there.
    """
    scheme, rest = _split(given)
    bucket, *names = given.partition("://")[2].rstrip("/").split("/")
    is_whole = bool(bucket or scheme in WITHOUT_BUCKET) and bool(names or not named)
    if not scheme or (is_address(given) and is_whole and not {".", ".."} & {*names}):
        return given
    raise InputError(
        f"{given}: expected an address such as {scheme}://{rest if '/' in rest else 'BUCKET/NAME'},"
        " with the name of a bucket, without . and .., and with a name in the bucket for what is "
        f"written. Where a folder of this machine is meant, give ./{given}"
    )


def refuse_address(given: str, takers: str) -> str:
    """Return `given`; raise InputError, which names the commands `takers`, for an address."""
    scheme, rest = _split(given)
    if not scheme:
        return given
    copy = f"`{COPY[scheme]}" if scheme in COPY else "the program of its service, `copy"
    raise InputError(
        f"{given}: is an address, where a file or folder of this machine is expected. Fetch it "
        f"with {copy} {scheme}://{rest} FOLDER`. {takers}"
    )


def folder_of_variable(name: str, default: Path) -> Path:
    """Return the folder that the environment variable names; InputError for an address."""
    folder = Path(os.environ.get(name) or default)
    if LIKE_ADDRESS.match(str(folder)):
        raise InputError(f"{name} is {folder}: expected a folder of this machine. Set another one.")
    return folder


@dataclass(frozen=True)
class Mirror:
    """The local copy of a folder in a bucket."""

    url: str
    folder: Path

    @classmethod
    def of(cls, url: str) -> "Mirror":
        """Return the mirror of an address; equal addresses on two servers have two mirrors."""
        url = check_address(url).rstrip("/")
        servers = [os.environ.get(name) for name in SERVERS if url.startswith("s3://")]
        server = next(filter(None, servers), "").rstrip("/")
        mark = hashlib.sha256(f"{server}{url}".encode()).hexdigest()[:12]
        caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        place = folder_of_variable("FASTSLOW_MIRRORS", caches / "fast-or-slow" / "mirrors")
        try:
            make_folder(place)
            check_writable(place)
        except (InputError, OSError) as error:
            where = f"The mirrors of buckets are kept in {place}: set FASTSLOW_MIRRORS to another"
            raise InputError(f"{error} {where} folder.") from error
        return cls(url, place / f"{PurePosixPath(url).name}-{mark}")

    @classmethod
    def find(cls, folder: Path) -> "Mirror | None":
        """Return the mirror whose local folder this is; None if the folder is no mirror."""
        mirror = cls("", folder)
        return cls(mirror._recall()["url"], folder) if mirror._sidecar.is_file() else None

    def pull(self, *, must_exist: bool = False) -> None:
        """Download what has changed in the bucket, and delete here what was deleted there.

        Args:
            must_exist: raise InputError if the bucket has no files at the address.

        Raises InputError also if files that were known have disappeared from the bucket.
        """
        with self._opened() as (system, root, known):
            there = self._list(system, root)
            self._check_there(there, known)
            if must_exist and not there:
                raise InputError(f"{self.url}: there is no file. Look at the address.")
            self.folder.mkdir(parents=True, exist_ok=True)

            def fetch(name: str) -> None:
                with replace_file(self.folder / name) as temporary:
                    system.get_file(f"{root}/{name}", str(temporary))
                known[name] = [there[name], _describe(self.folder / name)]

            now = {name: [there[name], _describe(self.folder / name)] for name in there}
            _transfer(fetch, [n for n in now if known.get(n) != now[n]], f"Fetching {self.url}")
            for name in known.keys() - there.keys():  # unknown files were never sent, and stay
                remove_with_emptied(self.folder / name, self.folder)
                del known[name]

    def push(self, under: str = "", *, over: bool = False) -> None:
        """Upload what has changed here, or only the part below the name `under`.

        Args:
            over: overwrite files that another machine has uploaded meanwhile.

        Raises InputError before anything is uploaded if another machine has uploaded such files.
        Buckets have no locks: two machines that check at the same moment may both write.
        """
        with self._opened() as (system, root, known):
            if known and not self.folder.is_dir():  # all files would be deleted in the bucket, too
                raise InputError(f"{self.folder}: was removed meanwhile, so nothing is sent.")
            paths = (path for path in sorted((self.folder / under).rglob("*")) if path.is_file())
            names = (path.relative_to(self.folder).as_posix() for path in paths)
            here = {name: _describe(self.folder / name) for name in names if TEMPORARY not in name}
            changed = _list_changed(here, known)
            if changed and not over:
                there = self._list(system, root, under)
                if not under:
                    self._check_there(there, known)
                records = [name for name in here if _is_record(name) and name in known]
                asked = [*(name for name in changed if name in there), *records]
                moved = {
                    n: [there.get(n), here[n]]
                    for n in asked
                    if there.get(n) != known.get(n, [None])[0]
                }
                self._refuse_others(system, root, known, moved)

            def send(name: str) -> None:
                system.makedirs(str(PurePosixPath(root, name).parent), exist_ok=True)
                system.put_file(str(self.folder / name), f"{root}/{name}")
                system.invalidate_cache(f"{root}/{name}")
                known[name] = [_name_version(system.info(f"{root}/{name}")), here[name]]

            _transfer(send, _list_changed(here, known), f"Sending {self.url}")
            gone = [n for n in known if n not in here and f"{n}/".startswith(under and f"{under}/")]
            for name in gone:
                with suppress(FileNotFoundError):
                    system.rm_file(f"{root}/{name}")
                del known[name]

    def _check_there(self, there: dict[str, str], known: Facts) -> None:
        """Raise InputError if known files are gone: otherwise they would be deleted here, too.

        Records are checked because an emptied bucket may hold what was sent since.
        """
        gone = [name for name in known if name in RECORDS and name not in there]
        if gone or (known and not there):
            raise InputError(
                f"{self.url}: expected the {count(len(known), 'file')} that stood there, found "
                f"{f'no {gone[0]}' if there else 'none'}. Nothing is deleted in {self.folder}. "
                f"Where the bucket was emptied, remove {self._sidecar}, and what is here is sent "
                "again; remove the folder as well to begin anew."
            )

    def _refuse_others(self, system: Any, root: str, known: Facts, moved: Facts) -> None:
        """Raise InputError for files that another machine has written since this one looked.

        Equal bytes, as if both made the same, are no conflict; such files become known.
        """

        def compare(name: str) -> None:
            content = system.cat_file(f"{root}/{name}")
            if content == (self.folder / name).read_bytes():
                known[name] = moved[name]

        _transfer(compare, [n for n in moved if moved[n][0] is not None], f"Comparing {self.url}")
        others = [name for name in moved if known.get(name) != moved[name]]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise InputError(
                f"{self.url}: another machine has written {others[0]}{more} there since this one "
                "looked. What stands there stays, and is not written over; what was made here is "
                f"kept in {self.folder}. When the other one is done, give the same command again: "
                "it fetches what is there and goes on. Or give another address."
            )

    def _list(self, system: Any, root: str, under: str = "") -> dict[str, str]:
        """Return the version of each file in the bucket, or of those below a name."""
        system.invalidate_cache()
        found = {}
        for path, info in system.find(str(PurePosixPath(root, under)), detail=True).items():
            name = PurePosixPath(path).relative_to(root).as_posix()
            if leads_out(name):
                raise InputError(f"{self.url}: has a file called {name!r}, which leads out of it.")
            if not path.endswith("/"):  # the mark of an empty folder
                found[name] = _name_version(info)
        return found

    @property
    def _sidecar(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.mirror.json")

    def _recall(self) -> dict[str, Any]:
        try:
            return read_sealed(self._sidecar, "the record of a mirror")
        except InputError as error:
            advice = f"Remove it and {self.folder}, both are made again."
            raise InputError(f"{error} {advice}") from error

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, str, Facts]]:
        """Yield the file system of fsspec, the path in it, and the facts, which are then stored.

        Errors become an InputError that names the bucket, or the local file.
        """
        try:
            from fsspec.core import url_to_fs  # installed by an extra

            system, root = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            how = f"Buckets need an extra. {how_to_install('cluster')} (for gs:// gcsfs as well)."
            raise InputError(f"{self.url}: {error}. {how}") from error
        known: Facts = self._recall()["files"] if self._sidecar.is_file() else {}
        for known_name in known:
            place_below(self.folder, known_name, self._sidecar)
        try:
            try:
                yield system, root, known
            finally:
                if self.folder.is_dir():
                    write_sealed({"url": self.url, "files": known}, self._sidecar)
        except InputError:
            raise
        except Exception as error:  # each service has its exceptions
            name = getattr(error, "filename", None)
            is_here = isinstance(name, str) and Path(name).is_relative_to(self.folder.parent)
            if isinstance(error, OSError) and (error.errno in FULL or is_here):
                raise InputError(
                    f"{name or self.folder}: cannot be kept ({error.strerror}), in the mirror of "
                    f"{self.url}. Make room, or set FASTSLOW_MIRRORS to a folder of yours on "
                    "another disk."
                ) from error
            raise InputError(
                f"{self.url}: cannot be reached or may not be used ({type(error).__name__}: "
                f"{error}). Look at the address and at the rights that the environment gives."
            ) from error


def _transfer(work: Callable[[str], None], names: Sequence[str], doing: str) -> None:
    """Call `work` for all names, several at once: first for files, then for their records."""
    from solution.system.progress import track  # rich, which ranking one file must not import

    shown = track(names, doing) if len(names) > MANY else nullcontext(iter(names))
    with ThreadPoolExecutor(AT_ONCE) as pool, shown as items:
        for final in (False, True):
            part = [name for name in names if _is_record(name) is final]
            for _ in zip(pool.map(work, part), items, strict=False):
                pass


def _list_changed(here: dict[str, list[int] | None], known: Facts) -> list[str]:
    return [name for name, now in here.items() if known.get(name, [None, None])[1] != now]


def _is_record(name: str) -> bool:
    return PurePosixPath(name).name in RECORDS


def _name_version(info: dict[str, Any]) -> str:
    """Return a text that differs between two versions of a file in a bucket."""
    return str([str(info[key]) for key in (*VERSION, "size") if key in info])


def _describe(path: Path) -> list[int] | None:
    """Return size and time of change (ns) of a local file; None if it does not exist."""
    return [path.stat().st_size, path.stat().st_mtime_ns] if path.is_file() else None


@contextmanager
def on_this_machine(
    given: str | Path, *, sends: bool = True, alone: bool = False
) -> Iterator[Path]:
    """Yield the folder, or the updated mirror of an address, whose changes are uploaded at the end.

    Args:
        sends: upload changes; otherwise the bucket is only read, and must have files.
        alone: lock the mirror against other processes of this machine.
    """
    if not is_address(str(given)):
        yield Path(given)
        return
    mirror = Mirror.of(str(given))
    guard = mirror.folder.with_name(f"{mirror.folder.name}.lock")
    guard.mkdir(exist_ok=True)
    wait = f"Wait for what works on {mirror.url}."
    with locked(guard, wait) if alone else nullcontext():
        mirror.pull(must_exist=not sends)
        try:
            yield mirror.folder
        except BaseException as error:
            if sends:
                with suppress(InputError):  # the first error is the one to show
                    mirror.push()
            if type(error) is not InputError:  # such as InputError, which names the bucket already
                raise
            raise InputError(str(error).replace(str(mirror.folder), mirror.url)) from error
        if sends:
            mirror.push()


def send_back(folder: Path, under: str = "") -> None:
    """Upload changed files, or those below `under`, if the folder is a mirror."""
    if mirror := Mirror.find(folder):
        mirror.push(under)
