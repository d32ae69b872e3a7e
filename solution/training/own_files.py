"""Load experiments from users' files, and reject files that could never be trained."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import TracebackType

from solution.experiments.base import Experiment, find_experiment, read_sources
from solution.models.base import RankerSettings
from solution.system.errors import InputError


def is_own(experiment: Experiment) -> bool:
    """Return whether the experiment comes from a user's file."""
    return Path(experiment.origin).suffix == ".py"


def load_experiment(name: str) -> Experiment:
    """Return the experiment with this name or file, as find_experiment does.

    Raises InputError also for mistakes in a user's file that would only show in training.
    """
    if Path(name).suffix != ".py":
        return find_experiment(name)
    with refuse_other_folder(name):
        try:
            experiment = find_experiment(name)
        except InputError as error:
            raise InputError(f"{error}{_find_place(error.__cause__, Path(name))}") from error
    _check_settings(experiment.ranker, name)
    return experiment


@contextmanager
def refuse_other_folder(source: str) -> Iterator[None]:
    """Raise InputError if the block changes the working folder."""
    before = Path.cwd()
    try:
        yield
    finally:
        now = Path.cwd()
        if now != before:  # relative paths of the data and the run would be wrong
            os.chdir(before)
            raise InputError(
                f"{source}: changes the working folder to {now}, expected that it stays "
                f"{before}, where the data and the run are looked for. Take the os.chdir out."
            )


def find_own_frames(trace: TracebackType | None, path: Path) -> list[traceback.FrameSummary]:
    """Return the traceback frames in the file and in the files that it imports from its folder."""
    path = path.absolute()
    files = {str(path.parent / name) for name in read_sources(path)}
    return [frame for frame in traceback.extract_tb(trace) if frame.filename in files]


def _find_place(error: BaseException | None, path: Path) -> str:
    """Return file and line at which the import failed, in the file or in files from its folder."""
    # their messages have the position
    if error is None or isinstance(error, (InputError, SyntaxError)):
        return ""
    own = find_own_frames(error.__traceback__, path)
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _check_settings(settings: RankerSettings, source: str) -> None:
    kind = type(settings)
    is_annotated = "__annotations__" in vars(kind) and "__dataclass_fields__" not in vars(kind)
    if not is_dataclass(kind) or is_annotated:
        raise InputError(
            f"{source}: {kind.__name__} is no dataclass, expected one, whose fields are the "
            f"settings. Write @dataclass(frozen=True) above class {kind.__name__}."
        )
    hops = settings.needed_hops
    if hops is not None and (type(hops) is not int or hops < 0):
        raise InputError(
            f"{source}: needed_hops of {kind.__name__} is {hops!r}, expected a whole number from "
            "0, or None for the whole graph."
        )
