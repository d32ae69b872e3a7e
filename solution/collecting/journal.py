"""What is known of a program's collection so far, on disk at every moment.

A folder holds three files: `state.json` says of what it is; `candidates.parquet` has a row for
each configuration, with its numbers and what the compiler made of it; `repeats.parquet` one for
each run that was timed. A configuration is named by a hash of its numbers, so a time can only ever
belong to the configuration that was run. All three are sealed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solution.collecting.identity import ADVICE, check_identity
from solution.collecting.spaces import read_configuration
from solution.collecting.timing import SCHEMA
from solution.system.errors import InputError
from solution.system.files import make_folder, remove_leftovers, write_sealed
from solution.system.parquet import reading, writing
from solution.system.sealing import check_any_seal, read_record, replace_sealed

CANDIDATES = pl.Schema(
    {
        "config": pl.String(),  # its name
        "values": pl.Binary(),  # its numbers
        "status": pl.String(),  # sound, wrong, refused or died
        "note": pl.String(),  # what is wrong, or why it was refused or died
        "compile_seconds": pl.Float64(),
    }
)
SOUND, WRONG, REFUSED, DIED = "sound", "wrong", "refused", "died"
STATE, CANDIDATE_FILE, REPEAT_FILE = "state.json", "candidates.parquet", "repeats.parquet"


class Journal:
    """The three files, and their content in memory."""

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        earlier: Mapping[str, Any] | None = None,
        schema: pl.Schema = CANDIDATES,
    ) -> None:
        """Open the folder, or make it.

        Args:
            identity: what must be the same where a collection goes on.
            earlier: what of it stands for keys that older records do not have.
            schema: of the candidates: CANDIDATES, and perhaps more columns.

        Raises:
            InputError: the folder is of another program, compiler, machine or search.
        """
        self.folder = folder
        make_folder(folder)
        remove_leftovers(folder)
        self.state = self._open_state(dict(identity), dict(earlier or {}))
        self.candidates = read_log(folder / CANDIDATE_FILE, schema)
        self.repeats = read_log(folder / REPEAT_FILE, SCHEMA)

    @property
    def is_finished(self) -> bool:
        return bool(self.state.get("finished"))

    @property
    def names(self) -> set[str]:
        """Of all configurations that were tried."""
        return set(self.candidates["config"])

    @property
    def next_turn(self) -> int:
        """The number of the next pass."""
        last = self.repeats["turn"].max()
        return 0 if last is None else int(last) + 1  # type: ignore[arg-type]

    def add_candidate(
        self, config: str, values: np.ndarray, status: str, note: str, seconds: float, *more: Any
    ) -> None:
        """Remember what became of a configuration, and write it down.

        Args:
            more: the columns that the schema has beside those of CANDIDATES.
        """
        row = pl.DataFrame(
            [(config, values.tobytes(), status, note, seconds, *more)],
            self.candidates.schema,
            orient="row",
        )
        self.candidates = pl.concat([self.candidates, row])
        self._write(self.candidates, CANDIDATE_FILE)

    def mark(self, config: str, status: str, note: str) -> None:
        """Change what is known of a configuration; its times are no longer used."""
        own = pl.col("config") == config
        self.candidates = self.candidates.with_columns(
            pl.when(own).then(pl.lit(status)).otherwise("status").alias("status"),
            pl.when(own).then(pl.lit(note)).otherwise("note").alias("note"),
        )
        self._write(self.candidates, CANDIDATE_FILE)

    def add_repeats(self, rows: Iterable[pl.DataFrame]) -> None:
        """Add the times of whole passes, and write them down."""
        self.repeats = pl.concat([self.repeats, *rows])
        self._write(self.repeats, REPEAT_FILE)

    def sound(self) -> pl.DataFrame:
        """The configurations that compile and compute what they should."""
        return self.candidates.filter(pl.col("status") == SOUND)

    def read_values(self, config: str, like: np.ndarray) -> np.ndarray:
        """The numbers of a configuration, of the type and shape of another one."""
        rows = self.candidates.filter(pl.col("config") == config)
        return read_configuration(rows["values"][0], like)

    def find_failure(self) -> str:
        """Why most of those that failed did; empty where none did."""
        notes = self.candidates.filter(pl.col("note") != "")["note"]
        return str(notes.mode(maintain_order=True)[0]) if len(notes) else ""

    def sound_repeats(self) -> pl.DataFrame:
        """Their times."""
        return self.repeats.join(self.sound().select("config"), on="config", how="semi")

    def finish(self, summary: Mapping[str, Any], *, is_final: bool) -> None:
        """Write down what came out, and whether nothing is left to do."""
        self.state = {**summary, "identity": self.state["identity"], "finished": is_final}
        write_sealed(self.state, self.folder / STATE)

    def _open_state(self, identity: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / STATE
        if not path.exists() and not any(self.folder.iterdir()):
            write_sealed({"identity": identity}, path)
            return {"identity": identity}
        state = read_state(self.folder)
        check_identity(self.folder, earlier | state["identity"], identity, "collection")
        return state

    def _write(self, frame: pl.DataFrame, name: str) -> None:
        path = self.folder / name
        with replace_sealed(path) as temporary, writing(path):
            frame.write_parquet(temporary)


def read_state(folder: Path) -> dict[str, Any]:
    """What state.json says; InputError where it is not what was written, or not there."""
    path = folder / STATE
    try:
        state = read_record(path, "a collection")
    except InputError as error:
        raise InputError(f"{error} {ADVICE}") from error
    if not isinstance(state.get("identity"), dict):
        raise InputError(f"{path}: expected the record of a collection, found another one.")
    return state


def read_log(path: Path, schema: pl.Schema) -> pl.DataFrame:
    """A file of the log; without rows where it is not there, InputError where it is none."""
    try:
        check_any_seal(path)
    except InputError as error:
        raise InputError(f"{error} To measure everything anew, add --replace.") from error
    if not path.exists():
        return schema.to_frame()
    with reading(path, "the log of a collection"):
        return pl.read_parquet(path, glob=False).match_to_schema(schema)
