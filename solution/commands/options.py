"""What several commands share: their options, and the store that is meant."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solution.data.folders import SAMPLE, check_exists
from solution.runs.folder import STORES

if TYPE_CHECKING:
    from solution.experiments.base import Experiment
    from solution.store.store import Store

Data = Annotated[
    Path,
    typer.Argument(
        callback=check_exists,
        help="Folder with the npz files, in any of their shapes, or a prepared store.",
        show_default="the bundled sample",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", callback=check_exists, help="The data or a prepared store. Default: the sample."
    ),
]
Preparers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes at once. Default: one per core.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes at once. Default: one per GPU, else per core with 5 GB of memory."
    ),
]
RunOption = Annotated[Path, typer.Option("--run", help="A run folder.")]
RecipeOption = Annotated[
    str | None, typer.Option(help="Name, or path of a TOML file. Default: the run's last one.")
]


def name_of(data: Path, *, limit: bool) -> str:
    """What a run or a store of the data is called."""
    return data.resolve().name + ("-limit" if limit else "")


@contextmanager
def open_given_store(
    data: Path | None, experiments: "Sequence[Experiment]" = ()
) -> "Iterator[Store]":
    """The store that is meant; the sample's where none is given."""
    from solution.experiments.base import find_experiment
    from solution.training.opening import open_store

    serves = list(experiments) or [find_experiment("nothing_001")]
    given = data or SAMPLE
    with open_store(given, STORES / given.resolve().name, serves) as store:
        yield store
