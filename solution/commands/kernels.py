"""`fastslow kernels ...`: those of submissions, and share: bundles, which they may not look at."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from solution.system.terminal import say
from submissions.kernels.commands import app

# Heavier imports wait inside the command.


@app.command()
def share(
    bundle: Annotated[Path, typer.Argument(help="Its folder or zip.")],
    name: Annotated[
        str | None, typer.Option(help="What it is called there. Default: the name of the file.")
    ] = None,
) -> None:
    """Upload a bundle as a private dataset of yours, a new version where it is there already.

    After a failure, give the same command again: what is there is not uploaded twice.

    Exit codes: 0 Kaggle has it, ready for use; 2 it has not, the message says why; 3 nobody knows
    yet whether it arrived, give the command again.
    """
    from solution.serving.archive import write_archive
    from solution.serving.bundle import load_bundle
    from solution.sessions.record import BUNDLE
    from submissions.calls import read_wait_settings
    from submissions.kernels.datasets import name_dataset, share

    slug = name_dataset(bundle.resolve().stem if name is None else name)
    opened = load_bundle(bundle)
    say(f"{bundle}: {opened.describe()}")
    with tempfile.TemporaryDirectory(prefix="fastslow-") as place:
        write_archive(opened.folder, Path(place) / BUNDLE)
        outcome = share(Path(place), slug, read_wait_settings())
    say(outcome.message)
    raise typer.Exit(outcome.code)
