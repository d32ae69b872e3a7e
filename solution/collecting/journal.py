"""Store the state of a program's collection on disk after each change.

A folder holds three files. `state.json` identifies the collection. `candidates.parquet` has a row
for each configuration, with its choices and whether it compiled. `repeats.parquet` has a row for
each timed run. A configuration is named by a hash, so a time can only belong to the configuration
that was run. All three files have checksums.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solution.collecting.identity import ADVICE, check_identity
from solution.collecting.timing import SCHEMA
from solution.system.errors import InputError
from solution.system.files import make_folder, remove_leftovers, write_sealed
from solution.system.parquet import reading, writing
from solution.system.sealing import check_any_seal, read_record, replace_sealed

CANDIDATES = pl.Schema(
    {
        "config": pl.String(),  # the configuration's name, a hash
        "values": pl.Binary(),  # the bytes of the configuration's choices (int32)
        # sound (correct), wrong (results differ), refused (by XLA), died (it killed the process)
        "status": pl.String(),
        # which results are wrong, or why the configuration was refused or died
        "note": pl.String(),
        "compile_seconds": pl.Float64(),
    }
)
SOUND, WRONG, REFUSED, DIED = "sound", "wrong", "refused", "died"
VERSION = 2  # version of the journal's format; version 1 stored layouts and tiles, not choices
STATE, CANDIDATE_FILE, REPEAT_FILE = "state.json", "candidates.parquet", "repeats.parquet"


class Journal:
    """The state of a program's collection: three files, and their contents in memory."""

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        schema: pl.Schema = CANDIDATES,
    ) -> None:
        """Open the folder's journal, or create it for a collection with this identity. `schema`:
        columns of the candidates. Raises InputError if the journal's identity differs, as for
        another program or machine."""
        self.folder = folder
        make_folder(folder)
        remove_leftovers(folder)
        self.state = self._open_state(dict(identity))
        self.candidates = read_log(folder / CANDIDATE_FILE, schema)
        self.repeats = read_log(folder / REPEAT_FILE, SCHEMA)

    @property
    def is_finished(self) -> bool:
        return bool(self.state.get("finished"))

    @property
    def names(self) -> set[str]:
        """Return the names of all configurations that were tried."""
        return set(self.candidates["config"])

    @property
    def next_turn(self) -> int:
        """Return the number that the next timing pass gets: 0, 1 and so on."""
        last = self.repeats["turn"].max()
        return 0 if last is None else int(last) + 1  # type: ignore[arg-type]

    def add_candidate(
        self, name: str, config: np.ndarray, status: str, note: str, seconds: float, *more: Any
    ) -> None:
        """Add a configuration (sites,) with status, seconds of compiling, and `more` columns of the
        schema; write the file."""
        row = pl.DataFrame(
            [(name, config.astype(np.int32).tobytes(), status, note, seconds, *more)],
            self.candidates.schema,
            orient="row",
        )
        self.candidates = pl.concat([self.candidates, row])
        self._write(self.candidates, CANDIDATE_FILE)

    def mark(self, config: str, status: str, note: str) -> None:
        """Change a configuration's status; its times are used only while the status is sound."""
        is_marked = pl.col("config") == config
        self.candidates = self.candidates.with_columns(
            pl.when(is_marked).then(pl.lit(value)).otherwise(column).alias(column)
            for column, value in (("status", status), ("note", note))
        )
        self._write(self.candidates, CANDIDATE_FILE)

    def add_repeats(self, rows: Iterable[pl.DataFrame]) -> None:
        """Add the runs of whole timing passes, and write the file."""
        self.repeats = pl.concat([self.repeats, *rows])
        self._write(self.repeats, REPEAT_FILE)

    def sound(self) -> pl.DataFrame:
        """Return the rows of the configurations that compile and compute correct results."""
        return self.candidates.filter(pl.col("status") == SOUND)

    def read_bytes(self, config: str) -> bytes:
        """Return the bytes of a configuration's choices."""
        rows = self.candidates.filter(pl.col("config") == config)
        return bytes(rows["values"][0])

    def find_failure(self) -> str:
        """Return the most frequent reason why configurations failed; "" if none failed."""
        notes = self.candidates.filter(pl.col("note") != "")["note"]
        return str(notes.mode(maintain_order=True)[0]) if len(notes) else ""

    def sound_repeats(self) -> pl.DataFrame:
        """Return the timed runs of the sound configurations."""
        return self.repeats.join(self.sound().select("config"), on="config", how="semi")

    def finish(self, summary: Mapping[str, Any], *, is_final: bool) -> None:
        """Write the summary; `is_final` says whether the collection is complete."""
        self.state = {**summary, "identity": self.state["identity"], "finished": is_final}
        write_sealed(self.state, self.folder / STATE)

    def _open_state(self, identity: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / STATE
        if not path.exists() and not any(self.folder.iterdir()):
            write_sealed({"identity": identity}, path)
            return {"identity": identity}
        state = read_state(self.folder)
        check_identity(self.folder, state["identity"], identity, "collection")
        return state

    def _write(self, frame: pl.DataFrame, name: str) -> None:
        path = self.folder / name
        with replace_sealed(path) as temporary, writing(path):
            frame.write_parquet(temporary)


def read_state(folder: Path) -> dict[str, Any]:
    """Return the content of state.json; raise InputError if it is missing or damaged."""
    path = folder / STATE
    try:
        state = read_record(path, "a collection")
    except InputError as error:
        raise InputError(f"{error} {ADVICE}") from error
    if not isinstance(state.get("identity"), dict):
        raise InputError(f"{path}: expected the record of a collection, found other entries.")
    return state


def read_log(path: Path, schema: pl.Schema) -> pl.DataFrame:
    """Return a journal file's rows, none if it is missing; InputError if it is damaged."""
    try:
        check_any_seal(path)
    except InputError as error:
        raise InputError(f"{error} To measure everything again, add --replace.") from error
    if not path.exists():
        return schema.to_frame()
    with reading(path, "the log of a collection"):
        return pl.read_parquet(path, glob=False).match_to_schema(schema)
