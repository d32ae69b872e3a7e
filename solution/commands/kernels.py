"""Add `share` to the commands `fastslow kernels`.

It is defined here because the package `submissions` may not import the code of bundles.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from solution.system.terminal import say
from submissions.kernels.commands import app

# Slow imports are inside the command.


@app.command()
def share(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder or zip.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset. Default: the name of the file.")
    ] = None,
) -> None:
    """Get a bundle into a private Kaggle dataset; an existing dataset gets a new version.

    After a failure, give the same command again. A version that had arrived may be uploaded once
    more, which does no harm.

    Exit codes: 0 ready for use at Kaggle; 2 not ready, the message says why.
    """
    from solution.serving.archive import write_archive
    from solution.serving.bundle import load_bundle
    from solution.sessions.record import BUNDLE
    from submissions.calls import read_wait_settings
    from submissions.kernels.datasets import name_dataset, share

    slug = name_dataset(bundle.resolve().stem if name is None else name)
    opened = load_bundle(bundle)
    say(f"{bundle}: {opened.describe()}")
    with tempfile.TemporaryDirectory(prefix="fastslow-") as folder:
        write_archive(opened.folder, Path(folder) / BUNDLE)
        outcome = share(Path(folder), slug, read_wait_settings())
    say(outcome.message)
    raise typer.Exit(outcome.code)
