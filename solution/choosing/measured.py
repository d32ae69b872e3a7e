"""Store verify.py's measurements on a TPU in the record of the search."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from solution.choosing.journal import RECORD, Journal
from solution.choosing.verdict import Verdict, judge
from solution.collecting.tpu.target import DEVICES, PREFIX
from solution.system.errors import InputError
from solution.system.files import locked, read_json

EXPECTED = "a verdict that verify.py wrote"
# entries of verify.py's file that are copied into the search's record
KEPT = ("device", "platform", "jax", "clock", "defect", "nanoseconds")


def take_verdict(path: Path, out: Path | None) -> str:
    """Copy the measurements in `path`, a file that verify.py wrote, into the search's record;
    return the verdict in words, recomputed from the times. The record is in the folder `out`.
    Without `out` it is in the folder of `path`; if none is there, in the folder below chosen/ whose
    search chose the measured configuration. Raises InputError if there is no record, verify.py did
    not write the file, or the search chose another configuration."""
    found = _read(path)
    folder = out or (path.parent if (path.parent / RECORD).is_file() else None)
    folder = folder or _find_folder(found)
    if not (folder / RECORD).is_file():
        raise InputError(
            f"{folder / RECORD}: expected the record of the search whose result {path} is about, "
            "found none. Give the search's folder as --out."
        )
    with locked(folder, "Wait for it."):
        journal = Journal.reopen(folder)
        result = journal.result or {}
        if result.get("choice") != found["choice"]:
            raise InputError(
                f"{path}: is about another configuration than the one in {folder}. Run verify.py "
                "of that folder, or give the folder that it belongs to as --out."
            )
        measured = {name: found[name] for name in KEPT}
        others = [one for one in result["measured"] if one != measured]
        journal.result = {**result, "measured": [*others, measured]}
        journal.write()
    target = str(journal.identity.get("target", ""))
    return f"{describe_measured(measured, target)} Stored: {folder / RECORD}"


def list_measured(result: dict[str, Any] | None) -> dict[str, list[dict[str, Any]]]:
    """Return {choice: records of verify.py's runs} from a search's result, earlier choices
    included."""
    if result is None:
        return {}
    found = dict(result.get("earlier", {}))
    if result["measured"]:
        found[result["choice"]] = result["measured"]
    return found


def _find_folder(found: dict[str, Any]) -> Path:
    """Return the folder below chosen/ whose search chose the measured configuration; if there is
    none, the folder named after the program."""
    named = Path("chosen") / Path(found["program"]).name
    for record in (named / RECORD, *sorted(Path("chosen").glob(f"*/{RECORD}"))):
        with suppress(InputError):  # skip missing or damaged records
            result = Journal.reopen(record.parent).result or {}
            if result.get("choice") == found["choice"]:
                return record.parent
    return named


def describe_measured(measured: dict[str, Any], target: str) -> str:
    """Return verify.py's result on a device, in words; also say if the device is not the `target`
    that the configuration was chosen for."""
    device = measured["device"]
    if measured["defect"]:
        words = f"On {device}: do not use the configuration: {measured['defect']}."
    else:
        words = f"Measured on {device}: {judge_rounds(measured).sentence()}"
    names = DEVICES.get(target.removeprefix(PREFIX), ())
    if not names or device in names:
        return words
    return f"{words} {device} is not {target} ({names[0]}): this proves nothing about {target}."


def judge_rounds(measured: dict[str, Any]) -> Verdict:
    """Return the A/B result of the times that verify.py measured."""
    return judge(*np.array(measured["nanoseconds"], np.float64).T)


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file of verify.py; InputError if verify.py did not write it."""
    try:
        found = read_json(path, EXPECTED)
    except OSError as error:
        raise InputError(f"{path}: expected {EXPECTED}, but: {error.strerror}.") from error
    texts = ("program", "choice", "device", "platform", "jax", "clock", "defect")
    wrong = [name for name in texts if not isinstance(found.get(name), str)]
    if not wrong and not _are_times(found.get("nanoseconds"), is_empty=bool(found["defect"])):
        wrong = ["nanoseconds"]
    if wrong:
        raise InputError(
            f"{path}: expected {EXPECTED}, found no valid entry {', '.join(wrong)}. Run verify.py "
            "again."
        )
    return found


def _are_times(value: Any, *, is_empty: bool) -> bool:
    """Return True if the value is a list of two or more pairs of positive numbers; with `is_empty`,
    True if it is an empty list."""
    if is_empty:
        return bool(value == [])
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(t, int | float) and math.isfinite(t) and t > 0 for t in pair)
            for pair in value
        )
    )
