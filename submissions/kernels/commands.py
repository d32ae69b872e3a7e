"""`fastslow kernels ...`: run the notebooks on Kaggle, and download their outputs."""

from typing import Annotated

import typer

from solution.system.terminal import output, say

# Slow imports are inside the commands that need them.

app = typer.Typer(
    name="kernels", help="Get the notebooks run on Kaggle, and their outputs.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of a notebook, or its beginning.")]
Dirty = Annotated[bool, typer.Option("--allow-dirty", help="Pack uncommitted changes.")]


@app.command()
def package(
    allow_dirty: Dirty = False,
) -> None:
    """Pack this project, and packages that Kaggle's image lacks, into a dataset folder.

    FASTSLOW_WHEELS sets the folder; the default is build/kernel-wheels.
    """
    from submissions.calls import read_wait_settings
    from submissions.kernels.packaging import package as pack
    from submissions.provenance import read_tree

    tree = read_tree()
    if not allow_dirty:
        tree.check_clean()
    settings = read_wait_settings()
    made = pack(tree, settings.wheels, settings.kernel_python)
    say(f"{made.folder}: {len(made.wheels)} wheels, {made.megabytes:.1f} MB, {made.commit}.")


PARAMETERS = """Parameters, for --set NAME=VALUE:

1: GRAPHS=30, the number of labelled graphs of each collection that are shown.

2 and 3: RECIPE=z_score_001, the recipe whose members are trained, instead of best;
EXPERIMENTS="layout_*,!*lightgbm*", patterns of them, of which the last match decides;
COLLECTIONS="layout:xla:*"; FOLDS="0,1", empty for all; NUM_FOLDS=5;
SCHEME=family, architecture or graph; HOURS=11.5, because Kaggle kills a session after 12;
LIMIT=1, a quick look; REPLACE=1, start afresh;
PACK=folds, the models in bundle.zip: those of all folds; refit, models trained on all labelled
graphs; or empty for no bundle.

4: RECIPE=z_score_001, instead of the one that merges most of what was trained; SOURCES="2-*,3-*",
the notebooks whose runs are combined. With --bundle no run is needed.

On the competition's data, notebook 2 takes some 15 to 25 core-hours (estimated on an imitation; 5
to 8 with RECIPE=z_score_001) and 3 at most 3, so each needs one session on Kaggle's four cores; its
GPUs were not measured. Work that does not fit into HOURS
continues with --resume in the next session; `fastslow run DATA --estimate` estimates the hours on
this machine."""


@app.command(epilog=PARAMETERS)
def push(
    notebook: Name,
    values: Annotated[
        list[str], typer.Option("--set", help="NAME=VALUE of a parameter; may be repeated.")
    ] = [],  # noqa: B006 - typer copies the list
    bundle: Annotated[
        str,
        typer.Option(
            help="Only for notebook 4 (ensemble and submit): the shared bundle to predict with, as "
            "NAME or OWNER/SLUG."
        ),
    ] = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the output of its last session.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Push even if its latest session still runs.")
    ] = False,
    allow_dirty: Dirty = False,
) -> None:
    """Upload the code, wait until it is ready, push the notebook once and record it.

    After a failure, give the same command again: it first looks whether the push arrived.

    Exit codes: 0 it runs on Kaggle; 2 nothing was pushed, the message says why; 3 it is not known
    yet whether it arrived, give the command again.
    """
    from submissions.calls import read_wait_settings
    from submissions.kernels.notebooks import find_notebook, parse_values
    from submissions.kernels.pushing import Order
    from submissions.kernels.pushing import push as send
    from submissions.provenance import read_tree

    found = find_notebook(notebook)
    chosen = parse_values(values, found.read())
    tree = read_tree()
    if not allow_dirty:
        tree.check_clean()
    outcome = send(Order(found, chosen, tree, resume, bundle, force), read_wait_settings())
    say(outcome.message)
    raise typer.Exit(outcome.code)


@app.command()
def status() -> None:
    """Show the state of the latest push of every notebook."""
    from submissions.calls import read_wait_settings
    from submissions.kernels.calls import Kernels
    from submissions.kernels.pulling import report_progress

    table, lines = report_progress(Kernels(read_wait_settings()))
    output.print(table)
    for line in lines:
        say(line)


@app.command()
def pull(
    notebook: Name,
    replace: Annotated[
        bool, typer.Option("--replace", help="Download again, and overwrite local files.")
    ] = False,
) -> None:
    """Download the outputs of the latest push into runs/NAME, all or nothing.

    Complete outputs from an earlier pull are kept; local files are not overwritten.

    Exit codes: 0, or 2 if the outputs are not ready, not of that push, incomplete, or would
    overwrite local files.
    """
    from solution.sessions.record import BUNDLE
    from submissions.calls import read_wait_settings
    from submissions.kernels.notebooks import find_notebook
    from submissions.kernels.pulling import pull as bring

    folder = bring(find_notebook(notebook), read_wait_settings(), replace=replace)
    say(f"{folder}: the outputs are complete.")
    if (folder / "run").is_dir():
        say(f"The run: {folder / 'run'}. Look at it with `fastslow report --run {folder / 'run'}`.")
    if (folder / BUNDLE).is_file():
        say(f"The bundle: rank with it by `fastslow rank FILE --with {folder / BUNDLE}`.")


@app.command()
def build(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="Notebooks to build. Default: all.")
    ] = None,
) -> None:
    """Execute the notebooks on the bundled sample, and write their ipynb files."""
    from submissions.kernels.notebooks import build as execute
    from submissions.kernels.notebooks import find_notebook, list_notebooks

    chosen = [find_notebook(name) for name in notebooks] if notebooks else list_notebooks()
    execute(chosen)
    say(f"Built: {', '.join(item.name for item in chosen)}.")
