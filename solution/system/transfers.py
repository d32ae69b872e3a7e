"""Transfer files to and from a bucket, several at once."""

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

# keys that tell two versions of a file apart
VERSION = ("ETag", "etag", "md5Hash", "crc32c", "mtime", "created", "size")
AT_ONCE = 16  # transfers in parallel
MANY = 50  # a progress bar is shown for more files than this
# written last: they say that the other files are complete
RECORDS = ("store.json", "run.json", "job.json")


@dataclass(frozen=True)
class Files:
    """The files below an address: a file system of fsspec and a path in it."""

    url: str
    system: Any
    root: str

    @classmethod
    def of(cls, url: str) -> "Files":
        """Return the files below an address; raise InputError if no library for its service is
        installed."""
        try:
            from fsspec.core import url_to_fs  # installed by an extra

            return cls(url, *url_to_fs(url))
        except (ImportError, ValueError) as error:
            raise InputError(
                f"{url}: {error}. Buckets need an extra. {how_to_install('cluster')} (for gs:// "
                "gcsfs as well)."
            ) from error

    def list_versions(self, under: str = "") -> dict[str, str]:
        """Return the version of each file in the bucket, by its name below the address.

        Args:
            under: list only this file, or the files below this folder.
        """
        self.system.invalidate_cache()
        found = {}
        place = f"{self.root}/{under}" if under else self.root
        for path, info in self.system.find(place, detail=True).items():
            if path.endswith("/"):  # marks an empty folder
                continue
            name = PurePosixPath(path).relative_to(PurePosixPath(self.root)).as_posix()
            if leads_out(name):
                raise InputError(f"{self.url}: has a file called {name!r}, which leads out of it.")
            found[name] = name_version(info)
        return found

    def fetch(self, name: str, path: Path) -> None:
        """Download a file to a local path."""
        self.system.get_file(f"{self.root}/{name}", str(path))

    def send(self, path: Path, name: str) -> str:
        """Upload a local file; return its version in the bucket."""
        there = f"{self.root}/{name}"
        self.system.makedirs(str(PurePosixPath(there).parent), exist_ok=True)
        self.system.put_file(str(path), there)
        return self.ask_version(name)

    def ask_version(self, name: str) -> str:
        """Return the version of a file in the bucket."""
        there = f"{self.root}/{name}"
        self.system.invalidate_cache(there)
        return name_version(self.system.info(there))

    def remove(self, name: str) -> None:
        """Delete a file in the bucket if it exists."""
        if self.system.exists(f"{self.root}/{name}"):
            self.system.rm_file(f"{self.root}/{name}")


def transfer_each(work: Callable[[str], None], names: Sequence[str], doing: str) -> Iterator[str]:
    """Call `work` for several names in parallel; yield each finished name in order.

    A progress bar is shown if there are more than MANY.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool, bars() if len(names) > MANY else nullcontext() as bar:
        task = bar.add_task(doing, total=len(names), note="") if bar is not None else None
        for name, _ in zip(names, pool.map(work, names), strict=True):
            if bar is not None and task is not None:
                bar.advance(task)
            yield name


def part(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the names into files and records; records are transferred last."""
    final = [name for name in names if is_record(name)]
    return [name for name in names if name not in final], final


def is_record(name: str) -> bool:
    """Return whether the file is a record, which says that other files are complete."""
    return PurePosixPath(name).name in RECORDS


def lies_under(name: str, under: str) -> bool:
    """Return whether `name` is `under` or lies below it; always true if `under` is empty."""
    return not under or name == under or name.startswith(f"{under.rstrip('/')}/")


def name_version(info: dict[str, Any]) -> str:
    """Return a text that differs between two versions of a file in a bucket."""
    return json.dumps([str(info[key]) for key in VERSION if key in info])
