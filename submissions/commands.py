"""The commands that call Kaggle; they import neither torch nor lightgbm."""

from pathlib import Path
from typing import Annotated

import typer

from solution.runs.folder import QUICK_LOOK, Run, find_runs
from solution.system.errors import InputError
from solution.system.terminal import output, say
from solution.system.wording import count

# Slow imports (polars, scipy) are inside the commands that need them.

app = typer.Typer()

SAMPLE_RUN = find_runs() / "sample"
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Send even if the file was sent before, no submissions are left today, or the run is "
        "a quick look.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do everything but the upload.")]
NotThere = Annotated[
    bool,
    typer.Option(
        "--not-there", help="Earlier submissions that Kaggle does not list did not arrive."
    ),
]
Dirty = Annotated[
    bool, typer.Option("--allow-dirty", help="Send with uncommitted changes, and record them.")
]


@app.command()
def submit(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of a recipe, or path of a TOML file. Default: the run's last."),
    ] = None,
    run_folder: Annotated[Path, typer.Option("--run", help="A run folder.")] = SAMPLE_RUN,
    force: Force = False,
    dry_run: DryRun = False,
    not_there: NotThere = False,
    allow_dirty: Dirty = False,
) -> None:
    """Get a score from Kaggle: merge, check and upload a submission once, and record it.

    After a failure, give the same command again: it first looks whether the submission arrived.

    Exit codes: 0 Kaggle has the submission (the message says if it has a score); 2 nothing was
    sent, the message says why; 3 it is not known yet whether it arrived, give the command again; 4
    Kaggle has it and could not score it.
    """
    from ensembles.recipe import choose_recipe
    from solution.runs.record import keep_others_out
    from submissions.build import build_submission, check_complete
    from submissions.calls import read_wait_settings
    from submissions.provenance import describe_code, pack_submission, read_tree
    from submissions.sending import submit as send

    settings = read_wait_settings()
    tree = read_tree()
    if dry_run and tree.changed:
        say(f"Not committed, so a real upload would be rejected: {', '.join(tree.changed)}.")
    elif not allow_dirty:
        tree.check_clean()
    run = Run.existing(run_folder)
    if run.is_quick and not force:
        _refuse_quick_look(run, dry_run=dry_run)
    with keep_others_out(run):
        built = build_submission(run, choose_recipe(run, recipe))
        say(built.scores.describe())
        say(built.written.describe())
        if words := describe_code(run, tree):
            say(words)
        check_complete(built)
        upload = pack_submission(built, tree)
    outcome = send(upload, settings, force=force, dry_run=dry_run, not_there=not_there)
    try:
        say(outcome.message)
    except OSError:  # for example if the disk is full; the exit code must still be the outcome's
        typer.echo(outcome.message, err=True)
    raise typer.Exit(outcome.code)


def _refuse_quick_look(run: Run, *, dry_run: bool) -> None:
    """Raise InputError, because the run is a quick look; a dry run only says so."""
    quick = f"{run.folder}: the run is a quick look (--limit): {QUICK_LOOK}"
    if not dry_run:
        raise InputError(
            f"{quick}. Its submission would waste one of the day's. Make a whole run, or give "
            "--force (make: FORCE=1)."
        )
    say(f"{quick}, so a real upload would be rejected.")


@app.command()
def scores() -> None:
    """Get the scores of all submissions at Kaggle, recorded in submissions/ledger.csv.

    Exit codes: 0, or 2 if Kaggle could not be asked; the ledger is shown in both cases.
    """
    from submissions import scores
    from submissions.calls import read_wait_settings
    from submissions.failures import KaggleError
    from submissions.kaggle import Kaggle
    from submissions.ledger import Tracker

    tracker = Tracker(Kaggle(read_wait_settings()))
    failure = None
    try:
        ledger = scores.update_ledger(tracker)
    except KaggleError as error:
        ledger, failure = tracker.read(), error
    if ledger.lines:
        output.print(scores.tabulate_ledger(ledger))
        output.print(scores.tabulate_standing(ledger))
        say(scores.describe_correlation(ledger))
    elif failure is not None:
        say("No submissions are known yet, because Kaggle could not be asked.")
    else:
        say(
            "No submission yet. The first is made by `make submit`; `fastslow doctor` says whether "
            "it can work."
        )
    say(f"Ledger: {tracker.path} ({count(len(ledger.lines), 'line')})")
    if failure:
        raise failure


@app.command()
def leaderboard() -> None:
    """Get the public leaderboard around our best submission.

    Exit codes: 0, or 2 if Kaggle could not be asked.
    """
    from submissions.calls import read_wait_settings
    from submissions.kaggle import Kaggle
    from submissions.ledger import Tracker
    from submissions.scores import best_public, tabulate_leaderboard

    kaggle = Kaggle(read_wait_settings())
    ours = best_public(Tracker(kaggle).read())
    output.print(tabulate_leaderboard(kaggle.list_leaderboard(), ours))
    if ours is None:
        say("The ledger has no public score of ours yet; `make scores` fetches them.")


@app.command()
def doctor() -> None:
    """Get the list of what a submission still needs, and how to provide it.

    Exit codes: 0 if `fastslow submit` can work, 2 if something must be done first.
    """
    from submissions.calls import read_wait_settings
    from submissions.doctor import examine, tabulate_findings

    findings = examine(read_wait_settings())
    output.print(tabulate_findings(findings))
    if any(finding.stops for finding in findings):
        raise typer.Exit(2)
