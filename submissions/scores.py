"""Show the ledger's scores in tables, beside published results, and update it from Kaggle."""

import csv
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.table import Table
from rich.text import Text

from solution.system.terminal import make_table
from solution.system.wording import count
from submissions.kaggle import Submission
from submissions.ledger import OOF_COLUMNS, Ledger, Line, edit_ledger, read_number
from submissions.tracker import Tracker, note, read_time, show_time

ANCHORS = Path(__file__).parent / "anchors.csv"  # results in their authors' publications
SHORT = ("xla def", "xla ran", "nlp def", "nlp ran", "tile xla")
KAGGLES = ("public", "private")  # Kaggle's scores
MIN_PAIRS = 3  # a correlation of fewer points means nothing


@dataclass(frozen=True)
class Anchor:
    """A published result of the competition."""

    name: str
    public: float
    private: float
    source: str


@dataclass(frozen=True)
class Correlation:
    """Correlations of the out-of-fold mean with one of Kaggle's scores."""

    linear: float | None  # None if there are too few pairs, or one score is constant
    ranks: float | None
    pairs: int  # submissions with both scores


def read_anchors() -> list[Anchor]:
    """Read the published scores, best private score first."""
    with ANCHORS.open(newline="", encoding="utf-8") as file:
        anchors = [
            Anchor(row["name"], float(row["public"]), float(row["private"]), row["source"])
            for row in csv.DictReader(file)
        ]
    return sorted(anchors, key=lambda anchor: -anchor.private)


def update_ledger(tracker: Tracker) -> Ledger:
    """Add all submissions at Kaggle to the ledger, also those of other machines and of the
    website."""
    listed = tracker.look()
    with edit_ledger(tracker.path) as ledger:
        known = {line["ref"] for line in ledger.lines}
        for submission in listed:
            if str(submission.ref) not in known:
                _add(ledger, submission)
    return tracker.read()


def _add(ledger: Ledger, submission: Submission) -> None:
    key = submission.field("key")
    if not key or ledger.find(key) is not None:
        key = f"kaggle-{submission.ref}"
    moment = read_time(submission.date)
    note(ledger, key, submission)
    ledger.put(
        key,
        when=show_time(moment) if moment else submission.date,
        recipe=submission.field("recipe"),
        commit=submission.field("commit"),
        file=submission.field("file"),
        oof_mean=submission.field("oof"),
        notes="" if submission.field("key") else " ".join((submission.description or "").split()),
    )


def tabulate_ledger(ledger: Ledger) -> Table:
    """Return a table of submissions: when, recipe, out-of-fold and Kaggle's scores, notes; 80
    columns."""
    table = make_table("Submissions; out-of-fold (OOF) scores beside Kaggle's")
    table.padding = 0  # because of ten columns
    table.add_column("When", no_wrap=True)
    table.add_column("Recipe", overflow="fold", width=13)
    for name in (*SHORT, "OOF mean"):
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    table.add_column("Public", justify="right", no_wrap=True)
    table.add_column("Private", justify="right", no_wrap=True)
    table.add_column("Notes", overflow="fold")
    for line in sorted(ledger.lines, key=lambda line: line["when"]):
        scored = line["state"] == "scored"
        table.add_row(
            line["when"][2:10],
            Text(line["recipe"]),  # Text: brackets are not markup
            *(_round_number(line[column], 2) for column in OOF_COLUMNS.values()),
            _round_number(line["oof_mean"], 3),
            _round_number(line["public"], 3) if scored or line["public"] else Text(line["state"]),
            _round_number(line["private"], 3),
            Text(line["notes"]),
            style="" if scored else "dim",
        )
    return table


def tabulate_standing(ledger: Ledger) -> Table:
    """Return a table of our best submission among the published scores."""
    table = make_table("Where it would stand, by the private score")
    table.add_column("", no_wrap=True)
    table.add_column("Public", justify="right")
    table.add_column("Private", justify="right")
    rows = [(a.private, a.name, f"{a.public:.3f}", "") for a in read_anchors()]
    best = find_best(ledger)
    if best is not None:
        public = _round_number(best["public"], 3) or "-"  # Kaggle may hide it
        rows.append((float(best["private"]), f"ours, {best['key']}", public, "bold green"))
    for private, name, public, style in sorted(rows, key=lambda row: -row[0]):
        table.add_row(Text(name), public, f"{private:.3f}", style=style)
    table.caption = f"Sources: {ANCHORS.parent.name}/{ANCHORS.name}"
    return table


def find_best(ledger: Ledger) -> Line | None:
    """Return the ledger's row with the best private score."""
    scored = [line for line in ledger.lines if read_number(line["private"]) is not None]
    return max(scored, key=lambda line: float(line["private"]), default=None)


def correlate(ledger: Ledger, name: str) -> Correlation:
    """Correlate the out-of-fold mean with Kaggle's score `name`."""
    pairs = [
        (own, theirs)
        for line in ledger.lines
        if (own := read_number(line["oof_mean"])) is not None
        and (theirs := read_number(line[name])) is not None
    ]
    if len(pairs) < MIN_PAIRS:
        return Correlation(None, None, len(pairs))
    frame = pl.DataFrame(pairs, schema=["own", "theirs"], orient="row")
    linear = frame.select(pl.corr("own", "theirs").fill_nan(None)).item()
    ranks = frame.select(pl.corr("own", "theirs", method="spearman").fill_nan(None)).item()
    return Correlation(linear, ranks, len(pairs))


def describe_correlation(ledger: Ledger) -> str:
    """Describe, in a sentence, how well the out-of-fold mean predicts Kaggle's scores."""
    parts = []
    for name in KAGGLES:
        found = correlate(ledger, name)
        if found.pairs < MIN_PAIRS:
            return (
                f"Correlation of OOF mean and {name} score: {count(found.pairs, 'submission')} "
                f"with both, {MIN_PAIRS} are needed."
            )
        if found.linear is None or found.ranks is None:
            return f"Correlation of OOF mean and {name} score: one of them is always the same."
        parts.append(
            f"{name} {found.linear:.2f} (ranks {found.ranks:.2f}, {found.pairs} submissions)"
        )
    return f"Correlation of OOF mean with Kaggle's scores: {'; '.join(parts)}."


def _round_number(text: str, digits: int) -> str:
    """Round a cell of the ledger to `digits`; return it unchanged if it is not a number."""
    number = read_number(text)
    return text if number is None else f"{number:.{digits}f}"
