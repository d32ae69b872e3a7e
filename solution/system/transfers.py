"""Files on their way to a bucket and back: what can be asked of it, and several at once."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from solution.system.errors import InputError
from solution.system.names import leads_out
from solution.system.progress import bars
from solution.system.wording import how_to_install

VERSION = ("ETag", "etag", "md5Hash", "crc32c", "mtime", "created", "size")  # what tells two apart
AT_ONCE = 16  # files that are on their way
MANY = 50  # files for which a bar is shown
RECORDS = ("store.json", "run.json", "job.json")  # that say that the others are there


@dataclass(frozen=True)
class Files:
    """A file system of fsspec, and the path of the address in it."""

    url: str
    system: Any
    root: str

    @classmethod
    def of(cls, url: str) -> "Files":
        """Those below an address; InputError where nothing is installed that knows its service."""
        try:
            from fsspec.core import url_to_fs  # an extra brings it

            return cls(url, *url_to_fs(url))
        except (ImportError, ValueError) as error:
            raise InputError(
                f"{url}: {error}. Buckets need an extra. {how_to_install('cluster')} (for gs:// "
                "gcsfs as well)."
            ) from error

    def list_versions(self, under: str = "") -> dict[str, str]:
        """What stands in the bucket: the version of each file, by its name below the address.

        Args:
            under: only that file, or what lies below it.
        """
        self.system.invalidate_cache()
        found = {}
        place = f"{self.root}/{under}" if under else self.root
        for path, info in self.system.find(place, detail=True).items():
            if path.endswith("/"):  # the mark of an empty folder
                continue
            name = PurePosixPath(path).relative_to(PurePosixPath(self.root)).as_posix()
            if leads_out(name):
                raise InputError(f"{self.url}: has a file called {name!r}, which leads out of it.")
            found[name] = name_version(info)
        return found

    def fetch(self, name: str, path: Path) -> None:
        """Write one of them to a file here."""
        self.system.get_file(f"{self.root}/{name}", str(path))

    def send(self, path: Path, name: str) -> str:
        """Put a file of this machine there; the version that it has then."""
        there = f"{self.root}/{name}"
        self.system.makedirs(str(PurePosixPath(there).parent), exist_ok=True)
        self.system.put_file(str(path), there)
        return self.ask_version(name)

    def ask_version(self, name: str) -> str:
        """The version of one of them."""
        there = f"{self.root}/{name}"
        self.system.invalidate_cache(there)
        return name_version(self.system.info(there))

    def remove(self, name: str) -> None:
        """Delete one of them, if it is there."""
        if self.system.exists(f"{self.root}/{name}"):
            self.system.rm_file(f"{self.root}/{name}")


def transfer_each(work: Callable[[str], None], names: Sequence[str], doing: str) -> Iterator[str]:
    """Several at once, for each waits for an answer; a bar where there are many."""
    with ThreadPoolExecutor(AT_ONCE) as pool, bars() if len(names) > MANY else nullcontext() as bar:
        task = bar.add_task(doing, total=len(names), note="") if bar is not None else None
        for name, _ in zip(names, pool.map(work, names), strict=True):
            if bar is not None and task is not None:
                bar.advance(task)
            yield name


def part(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names in two parts, of which the second comes last."""
    final = [name for name in names if is_record(name)]
    return [name for name in names if name not in final], final


def is_record(name: str) -> bool:
    """Whether it says that other files are there."""
    return PurePosixPath(name).name in RECORDS


def lies_under(name: str, under: str) -> bool:
    """Whether it is that file or lies below it; without one, whatever it is."""
    return not under or name == under or name.startswith(f"{under.rstrip('/')}/")


def name_version(info: dict[str, Any]) -> str:
    """What tells two states of a file in a bucket apart."""
    return json.dumps([str(info[key]) for key in VERSION if key in info])
