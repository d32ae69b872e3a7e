"""List the runs of a folder with their scores and their submissions."""

import csv
from dataclasses import astuple, dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ensembles.last_recipe import is_whole, recall
from ensembles.recipe import is_merge
from solution.runs.folder import RECORD, Run
from solution.runs.origin import recall_origin
from solution.system.errors import InputError
from solution.system.terminal import make_table
from submissions.ledger import Ledger, read_ledger
from submissions.provenance import fingerprint_file
from submissions.settings import read_settings

DAMAGED = "damaged"


@dataclass(frozen=True)
class RunLine:
    """A run's row, as text, in the order of the columns."""

    name: str
    date: str
    models: str
    recipe: str
    score: str  # out of fold
    kaggle: str  # the public score, or the submission's state


def list_runs(folder: Path) -> list[RunLine]:
    """Return the runs in the folder, sorted by name."""
    ledger = read_ledger(read_settings().ledger)
    return [_describe(path.parent, ledger) for path in sorted(folder.glob(f"*/{RECORD}"))]


def show_runs(lines: list[RunLine]) -> Table:
    """Return a table of the runs."""
    table = make_table(
        "Runs; the score is the ensemble's, out of fold on the data of the run",
        expendable=("Models", "Trained"),
    )
    for name in ("Run", "Trained", "Models", "Recipe", "Score", "Kaggle"):
        right = name in ("Models", "Score", "Kaggle")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "Recipe")
    for line in lines:
        table.add_row(*map(Text, astuple(line)))  # Text: brackets are not markup
    return table


def _describe(folder: Path, ledger: Ledger) -> RunLine:
    try:
        run = Run.existing(folder)
        origin, recipe, whole = recall_origin(run), recall(folder), is_whole(folder)
        models, quick = run.count_models(), run.is_quick
    except InputError:
        return RunLine(folder.name, "", "", "its record is damaged", "", "")
    merged = recipe.name if recipe else "not merged yet"
    merged += ", a quick look" if quick else ""
    return RunLine(
        folder.name,
        origin.date if origin else "",
        str(models),
        merged if whole else f"{merged}, to be merged again",
        _read_score(run.scores) if whole else "",
        _find_at_kaggle(run, ledger),
    )


def _read_score(path: Path) -> str:
    """Return the ensemble's mean over its collections; empty if there are no scores yet."""
    if not path.is_file():
        return ""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file, strict=True)
            names, lines = table.fieldnames, list(table)
        own = [float(line["score"]) for line in lines if is_merge(line["ranker"])]
    # the file was cut or edited
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error):
        return DAMAGED
    if own:
        return f"{sum(own) / len(own):.3f}"
    # If no program could be held out, the table has only a header.
    return DAMAGED if lines or not names else ""


def _find_at_kaggle(run: Run, ledger: Ledger) -> str:
    if not run.submission.is_file():
        return ""
    found = ledger.of_file(fingerprint_file(run.submission))
    return found[-1]["public"] or found[-1]["state"] if found else ""
