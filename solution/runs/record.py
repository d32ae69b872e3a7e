"""Write the record of a run (settings, code, versions), and check it before the run continues."""

import json
import platform
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from solution.domain import predictions
from solution.runs.fingerprint import fingerprint_code
from solution.runs.folder import CHECKPOINTS, EXPERIMENTS, JOBS, QUICK, RECORD, Run, read_run_record
from solution.system.buckets import send_back
from solution.system.commit import read_commit
from solution.system.errors import InputError
from solution.system.files import (
    TEMPORARY,
    locked,
    make_folder,
    remove,
    remove_leftovers,
    write_sealed,
)
from solution.system.names import check_text
from solution.system.progress import warn
from solution.system.sealing import check_seal
from solution.system.wording import shorten

# Patterns of the files that training writes in an experiment's folder.
WRITTEN = (*predictions.PARTS, f"{JOBS}/*", f"{JOBS}/*/*{CHECKPOINTS}")
WIDTH = 60  # maximum characters of a setting in a message
LIBRARIES = ("torch", "torch-geometric", "lightgbm", "polars", "numpy", "scipy")


@contextmanager
def open_run(
    folder: Path, settings: dict[str, Any], *, replace: bool = False, quick: bool = False
) -> Iterator[Run]:
    """Begin or resume a run, and lock its folder against other processes meanwhile.

    Experiments in `settings` that the run does not have yet are added to it.

    Args:
        replace: empty the folder first if it contains a run.
        quick: record a run that begins now as a quick look.

    Raises InputError if the folder contains a run with other settings or code, or other files, or
    is used by another process.
    """
    record, wanted, found = folder / RECORD, _describe(settings), _read_ours(folder)
    if found is not None and not replace:
        _check_same(folder, wanted, found)
    make_folder(folder)
    with locked(folder, "Wait for it, or choose another folder with --run."):
        if replace:
            # Remove the record last: as long as it exists, the folder is recognised as a run.
            for path in sorted(folder.iterdir(), key=lambda path: path.name == RECORD):
                remove(path)
        if not record.is_file():
            made: dict[str, Any] = {"commit": read_commit(), "versions": list_versions()}
            made |= {QUICK: True} if quick else {}
            write_sealed({**wanted, **made}, record)
        _remove_leftovers(folder)
        compare_versions(folder, read_run_record(folder))
        _add_experiments(record, wanted["settings"])
        # upload the record before training, so that two machines notice that they begin one run
        send_back(folder)
        yield Run(folder)


def keep_others_out(run: Run) -> AbstractContextManager[None]:
    """Lock the run's folder like open_run; raise InputError if another process holds the lock."""
    return locked(run.folder, "Wait for it, then give the command again.")


def check_folder(folder: Path, known: dict[str, Any], *, replace: bool = False) -> None:
    """Raise InputError as open_run would. Called before the data is prepared, to fail early.

    Args:
        known: the settings that are known before the preparation; only these are compared.
        replace: the folder will be emptied, so its run is not compared.
    """
    found = _read_ours(folder)
    if found is not None and not replace:
        chosen = {name: value for name, value in found["settings"].items() if name in known}
        _check_same(folder, _describe(known), {**found, "settings": chosen})


def _read_ours(folder: Path) -> dict[str, Any] | None:
    """Return the record of the run in `folder`; None if the folder is empty or missing. Raises
    InputError if the folder has files but no run."""
    check_text(folder)
    if (folder / RECORD).is_file():
        return read_run_record(folder)
    if _holds_something(folder):
        raise InputError(
            f"{folder}: expected an empty folder or a run, found other files. "
            "Choose another folder with --run."
        )
    return None


def _describe(settings: dict[str, Any]) -> dict[str, Any]:
    # Convert to JSON and back, so that tuples become lists, as in the record of the file.
    described: dict[str, Any] = json.loads(
        json.dumps({"settings": settings, "code": fingerprint_code()})
    )
    return described


def _add_experiments(record: Path, settings: dict[str, Any]) -> None:
    found = read_run_record(record.parent)
    known = found["settings"].get(EXPERIMENTS, {})
    if settings.get(EXPERIMENTS, {}).keys() - known.keys():
        found["settings"][EXPERIMENTS] = {**known, **settings[EXPERIMENTS]}
        write_sealed(found, record)


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files that a stopped training left. A stopped merge may have left some too;
    the next merge removes them."""
    names = read_run_record(folder)["settings"].get(EXPERIMENTS, {})
    remove_leftovers(folder, [f"{name}/{pattern}" for name in names for pattern in WRITTEN])


def _holds_something(folder: Path) -> bool:
    """Return True if `folder` is a file or contains a file; temporary files do not count."""
    if not folder.is_dir():
        return folder.exists()
    return any(
        TEMPORARY not in path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


def _check_same(folder: Path, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    different = _differences(wanted, found)
    if different:
        raise InputError(
            f"{folder}: contains a run that was made differently ({different}). Choose another "
            "folder with --run, give a changed experiment another name, or start afresh: delete "
            f"{folder}, or add --replace to the `fastslow run` that began it (make: REPLACE=1)."
        )


def compare_versions(folder: Path, record: dict[str, Any]) -> None:
    """Warn if the run in `folder` was begun with other versions of the libraries."""
    then, now = record.get("versions", {}), list_versions()
    other = [
        f"{name} {then[name]}, now {now[name]}"
        for name in now
        if then.get(name, now[name]) != now[name]
    ]
    if other:
        warn(
            f"{folder}: was begun with other versions ({'; '.join(other)}). Its models are kept; "
            "new models may differ from them in the last digits."
        )


def check_split(run: Run) -> None:
    """Raise InputError if the run's table of graphs or of labels is damaged."""
    for path in (run.graphs, run.labels):
        check_seal(path)


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    if wanted["code"] != found.get("code"):
        return "by other code"
    different = list_differences(found["settings"], wanted["settings"])
    return "; ".join(
        line for name, pair in sorted(different.items()) for line in _tell_apart(name, *pair)
    )


def _tell_apart(name: str, old: Any, new: Any) -> list[str]:
    """Return a line "NAME: OLD, now NEW" for each difference between two values. Dictionaries are
    compared key by key, and the texts of settings, such as Ridge(penalty=1.0), part by part."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        pairs = [(f"{key} of {name}", old.get(key), new.get(key)) for key in keys]
        return [line for pair in pairs for line in _tell_apart(*pair)]
    if isinstance(old, str) and isinstance(new, str):
        first, second = Counter(_divide(old)), Counter(_divide(new))
        gone, added = (", ".join(parts.elements()) for parts in (first - second, second - first))
        if gone or added:
            old, new = gone or "nothing", added or "nothing"
    return [f"{name}: {shorten(str(old), WIDTH)}, now {shorten(str(new), WIDTH)}"]


def _divide(text: str) -> list[str]:
    """Return the parts of a settings object's text: Ridge(penalty=1.0, net=Net(width=2)) becomes
    Ridge, penalty=1.0, net=Net, width=2. Another text is one part."""
    parts = []
    for part in re.split(r", (?=\w+=)", text):
        rest = part
        while opening := re.match(r"((?:\w+=)?[A-Za-z_]\w*)\(", rest):
            parts.append(opening[1])
            rest = rest[opening.end() :]
        while rest.endswith(")") and rest.count(")") > rest.count("("):
            rest = rest[:-1]
        parts += [rest] if rest else []
    return parts


def list_differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return {setting: (value in one, value in other)} for all settings that differ. An experiment
    that only one of the two runs has does not count as a difference."""
    first, second = dict(one), dict(other)
    experiments, others = (settings.pop(EXPERIMENTS, {}) for settings in (first, second))
    pairs = {name: (first.get(name), second.get(name)) for name in {**first, **second}}
    pairs |= {n: (experiments[n], others[n]) for n in sorted(experiments.keys() & others.keys())}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@cache
def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that influence predictions."""
    installed = {name: metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **installed}
