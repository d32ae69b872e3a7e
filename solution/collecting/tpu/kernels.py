"""Cache the costs of kernels, and the results of compiling whole modules.

The key of a kernel's cost is the hash of its canonical form, the key of a compilation the hash of
its module. Both keys include the target, the options and libtpu's version. The cache is one SQLite
file, which several processes share. Deleting its folder clears it.
"""

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from solution.collecting.tpu.compiled import Cost, Tile
from solution.system.errors import InputError
from solution.system.files import check_writable, make_folder
from solution.system.names import cache_of_variable

VARIABLE = "FASTSLOW_TPU_CACHE"
FILE = "compiled-1.sqlite"  # the number changes with the format of the file
WAIT_SECONDS = 60.0  # seconds to wait while another process writes
MOST_BYTES = 2 << 30  # size limit of the stored compilations; beyond it the oldest are deleted
TABLES = """
CREATE TABLE IF NOT EXISTS kernels (
    context TEXT, key TEXT, cost TEXT, PRIMARY KEY (context, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS compilations (
    number INTEGER PRIMARY KEY, key TEXT UNIQUE, refused TEXT, passed BLOB, size INTEGER);
"""


def find_cache_folder() -> Path:
    """Return the folder of the cache: $FASTSLOW_TPU_CACHE, else a folder in the user's cache
    folder. Raises InputError if the variable contains the address of a bucket."""
    return cache_of_variable(VARIABLE, "tpu")


class KernelCache:
    """Costs of kernels and results of compilations, stored in a folder."""

    def __init__(self, folder: Path) -> None:
        """Open the folder's cache; create it if it does not exist. Raises InputError if the folder
        cannot be written to."""
        self._lock = threading.RLock()  # several threads use one connection
        make_folder(folder)
        check_writable(folder)
        path = folder / FILE
        try:
            self._database = sqlite3.connect(
                path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            # use write-ahead logging if the file system supports it; else it is slower, but as safe
            with suppress(sqlite3.OperationalError):
                self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(TABLES)
        except sqlite3.DatabaseError as error:
            raise _refuse(path, error) from error
        self._path = path

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Reserve the database for one thread in the block. Raises InputError if it is damaged,
        full, or locked by another process."""
        try:
            with self._lock:
                yield
        except sqlite3.ProgrammingError:  # a programming error: the cache was used after `close`
            raise
        except (sqlite3.DatabaseError, zlib.error, ValueError, TypeError) as error:
            if "locked" in str(error):
                raise InputError(
                    f"{self._path}: another process has written to it for {WAIT_SECONDS:.0f} "
                    f"seconds. Wait for it, or name another folder in {VARIABLE}."
                ) from error
            raise _refuse(self._path, error) from error

    def close(self) -> None:
        self._database.close()

    def find(self, context: str, keys: Iterable[str]) -> dict[str, Cost]:
        """Return the stored costs of kernels, {canonical name: cost}; kernels without a stored cost
        are left out. `context`: hash of the target, the options and libtpu's version."""
        found = {}
        with self._using():
            for key in keys:
                row = self._database.execute(
                    "SELECT cost FROM kernels WHERE context = ? AND key = ?", (context, key)
                ).fetchone()
                if row:
                    found[key] = _read_cost(row[0])
        return found

    def learn(self, context: str, costs: Mapping[str, Cost]) -> int:
        """Store the costs of kernels, {canonical name: cost}; do not replace stored ones. Return
        the number of kernels whose stored cost differs from the given one."""
        with self._using(), self._database:  # the transaction ends with the block
            self._database.execute("BEGIN IMMEDIATE")
            known = self.find(context, costs)
            self._database.executemany(
                "INSERT OR IGNORE INTO kernels VALUES (?, ?, ?)",
                ((context, key, _write_cost(cost)) for key, cost in costs.items()),
            )
        return sum(known.get(key, cost) != cost for key, cost in costs.items())

    def find_compilation(self, key: str) -> tuple[str, bytes] | None:
        """Return the stored compilation of a module, None if there is none: why the compiler
        refused the module ("" if it did not), and the serialized result of the passes over HLO."""
        with self._using():
            row = self._database.execute(
                "SELECT refused, passed FROM compilations WHERE key = ?", (key,)
            ).fetchone()
            return (str(row[0]), zlib.decompress(row[1])) if row else None

    def keep_compilation(self, key: str, refused: str, passed: bytes) -> None:
        """Store a compilation; if all stored compilations exceed the size limit, delete their
        older half."""
        packed = zlib.compress(passed, 1)
        with self._using():
            self._database.execute(
                "INSERT OR IGNORE INTO compilations (key, refused, passed, size) "
                "VALUES (?, ?, ?, ?)",
                (key, refused, packed, len(packed)),
            )
            self._shrink()

    def _shrink(self) -> None:
        with closing(self._database.cursor()) as cursor:
            (size,) = cursor.execute("SELECT SUM(size) FROM compilations").fetchone()
            if (size or 0) > MOST_BYTES:
                cursor.execute(
                    "DELETE FROM compilations WHERE number <= "
                    "(SELECT (MIN(number) + MAX(number)) / 2 FROM compilations)"
                )


def _refuse(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path}: expected the cache of what was compiled for TPUs, but: {error}. Delete the "
        f"folder, or name another one in {VARIABLE}."
    )


def _write_cost(cost: Cost) -> str:
    tile = None if cost.tile is None else [cost.tile.kernel, cost.tile.output, cost.tile.input]
    return json.dumps([cost.cycles, tile])


def _read_cost(text: str) -> Cost:
    cycles, tile = json.loads(text)
    return Cost(cycles, None if tile is None else Tile(*(tuple(sizes) for sizes in tile)))
