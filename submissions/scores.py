"""Show the ledger's scores beside published results and the leaderboard; list the runs."""

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.table import Table
from rich.text import Text

from ensembles.recipe import is_merge, recall
from solution.domain.collection import COLLECTIONS
from solution.runs.folder import RECORD, Run, recall_origin
from solution.system.errors import InputError
from solution.system.terminal import make_table
from solution.system.wording import count
from submissions.calls import read_wait_settings
from submissions.kaggle import LeaderboardRow, Submission, read_number
from submissions.ledger import (
    OOF_COLUMNS,
    Ledger,
    Line,
    Tracker,
    edit_ledger,
    note,
    read_ledger,
    read_time,
    show_time,
)
from submissions.provenance import fingerprint_file

ANCHORS = Path(__file__).parent / "anchors.csv"  # published results of the competition
SHORT = ("xla def", "xla ran", "nlp def", "nlp ran", "tile xla")
KAGGLES = ("public", "private")  # columns of the ledger with Kaggle's scores
MIN_PAIRS = 3  # a correlation of fewer points means nothing
AROUND = 8  # rows of the leaderboard that are shown above and below our rank
TOP = 3  # rows at the top of the leaderboard that are always shown
DAMAGED = "damaged"


@dataclass(frozen=True)
class Anchor:
    """A published result of the competition."""

    name: str
    public: float
    private: float


@dataclass(frozen=True)
class Correlation:
    """Correlations of the out-of-fold mean with one of Kaggle's scores."""

    linear: float | None  # Pearson's r; None if there are too few pairs, or one score is constant
    ranks: float | None  # Spearman's rank correlation; None if `linear` is None
    pairs: int  # number of submissions that have both scores


def read_anchors() -> list[Anchor]:
    """Read the published scores, best private score first."""
    with ANCHORS.open(newline="", encoding="utf-8") as file:
        anchors = [
            Anchor(row["name"], float(row["public"]), float(row["private"]))
            for row in csv.DictReader(file)
        ]
    return sorted(anchors, key=lambda anchor: -anchor.private)


def update_ledger(tracker: Tracker) -> Ledger:
    """Add all submissions at Kaggle to the ledger, including those sent from elsewhere."""
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
    """Return a table of all submissions, 80 columns wide: dates, recipes, scores and notes."""
    table = make_table("Submissions; out-of-fold (OOF) scores beside Kaggle's")
    table.padding = 0  # so that ten columns fit into 80 characters
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
            Text(line["recipe"]),  # Text, because brackets in a name are not markup
            *(_round_number(line[column], 2) for column in OOF_COLUMNS.values()),
            _round_number(line["oof_mean"], 3),
            _round_number(line["public"], 3) if scored or line["public"] else Text(line["state"]),
            _round_number(line["private"], 3),
            Text(line["notes"]),
            style="" if scored else "dim",
        )
    return table


def tabulate_standing(ledger: Ledger) -> Table:
    """Return a table of the published private scores with our best submission among them."""
    title = "Where it would stand, by the private score"
    table = make_table(title, names=("",), numbers=("Public", "Private"))
    rows = [(a.private, a.name, f"{a.public:.3f}", "") for a in read_anchors()]
    best = find_best(ledger)
    if best is not None:
        public = _round_number(best["public"], 3) or "-"  # Kaggle may hide the public score
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
    """Correlate the out-of-fold mean with Kaggle's score `name`: "public" or "private"."""
    pairs = [
        (ours, theirs)
        for line in ledger.lines
        if (ours := read_number(line["oof_mean"])) is not None
        and (theirs := read_number(line[name])) is not None
    ]
    if len(pairs) < MIN_PAIRS:
        return Correlation(None, None, len(pairs))
    frame = pl.DataFrame(pairs, schema=["ours", "theirs"], orient="row")
    linear = frame.select(pl.corr("ours", "theirs").fill_nan(None)).item()
    ranks = frame.select(pl.corr("ours", "theirs", method="spearman").fill_nan(None)).item()
    return Correlation(linear, ranks, len(pairs))


def describe_correlation(ledger: Ledger) -> str:
    """Return a sentence about how well the out-of-fold mean predicts Kaggle's scores."""
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


if TYPE_CHECKING:  # only notebooks draw; the commands start without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {"public": "C0", "private": "C3", "oof_mean": "C7"}
NAMES = {"public": "public", "private": "private", "oof_mean": "out of fold"}
BEST_ANCHORS = 3


def draw_history(ledger: Ledger, anchors: Sequence[Anchor]) -> "Figure":
    """Draw the scores of all submissions in order, and Kaggle's against out-of-fold scores."""
    from matplotlib.figure import Figure

    ordered = sorted(ledger.lines, key=lambda line: line["when"])
    lines = [line for line in ordered if read_number(line["private"]) is not None]
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.6, 1])
    _draw_course(lines, anchors, left)
    _draw_correlation(lines, right)
    return figure


def _draw_course(lines: list[Line], anchors: Sequence[Anchor], axes: "Axes") -> None:
    for column, colour in SHOWN.items():
        points = [
            (number, value)
            for number, line in enumerate(lines)
            if (value := read_number(line[column])) is not None
        ]
        if points:
            numbers, values = zip(*points, strict=True)
            axes.plot(numbers, values, color=colour, marker="o", ms=5, lw=1, label=NAMES[column])
    for number, anchor in enumerate(anchors[:BEST_ANCHORS]):
        style = {"color": "black", "lw": 0.8, "ls": (":", "--", "-.")[number]}
        axes.axhline(anchor.private, label=f"{anchor.name} ({anchor.private:.3f})", **style)  # type: ignore[arg-type]
    axes.set_xticks(range(len(lines)), [line["when"][2:10] for line in lines], rotation=90)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel("submission, the oldest first" if lines else "no submission has a score yet")
    axes.set_ylabel("score, higher is better")
    axes.set_title("Submissions, and the best known private scores")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_correlation(lines: list[Line], axes: "Axes") -> None:
    both = [line for line in lines if read_number(line["oof_mean"]) is not None]
    ours = [read_number(line["oof_mean"]) for line in both]
    for column in ("public", "private"):
        theirs = [read_number(line[column]) for line in both]
        axes.scatter(ours, theirs, s=24, color=SHOWN[column], label=NAMES[column])  # type: ignore[arg-type]
    axes.set_xlabel("mean score out of fold")
    axes.set_ylabel("score at Kaggle")
    axes.set_title(f"Out of fold against Kaggle: {len(both)} submissions")
    if both:
        axes.legend(fontsize=8, frameon=False)
    else:
        axes.text(0.5, 0.5, "none has both scores yet", ha="center", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])


def best_public(ledger: Ledger) -> float | None:
    """Return our best public score in the ledger."""
    scores = [read_number(line["public"]) for line in ledger.lines]
    return max((score for score in scores if score is not None), default=None)


def tabulate_leaderboard(rows: list[LeaderboardRow], ours: float | None) -> Table:
    """Return a table of the leaderboard's first rows and of the rows around our rank. `ours` is our
    best score; if it is None, the table shows only the first rows."""
    table = make_table(f"Public leaderboard, {len(rows)} teams")
    table.add_column("Place", justify="right")
    table.add_column("Team", overflow="ellipsis", no_wrap=True, max_width=50)
    table.add_column("Public", justify="right")
    rank = TOP + AROUND
    if ours is not None:  # our rank is below rows with an equal score
        rank = 1 + sum(row.score is not None and row.score >= ours for row in rows)
    last = 0
    for number, row in enumerate(rows, start=1):
        if number == rank and ours is not None:
            _add_ours(table, rank, ours)
        if number <= TOP or rank - AROUND <= number < rank + AROUND:
            if number > last + 1:
                table.add_row("...", "", "")
            shown = "" if row.score is None else f"{row.score:.5f}"
            table.add_row(str(number), Text(row.teamName or ""), shown)
            last = number
    if ours is not None and rank > len(rows):
        _add_ours(table, rank, ours)
    return table


def _add_ours(table: Table, rank: int, score: float) -> None:
    table.add_row(f"({rank})", "our best submission", f"{score:.5f}", style="bold green")


@dataclass(frozen=True)
class RunLine:
    """A row of the table of runs: its cells as text, in the order of the columns."""

    name: str
    date: str
    models: str
    recipe: str
    score: str  # the ensemble's mean, out of fold; with their number if not over all collections
    kaggle: str  # public score of the run's submission, else its state; empty if it was never sent


def list_runs(folder: Path) -> list[RunLine]:
    """Return the runs in the folder, sorted by name. The run of a notebook that was pulled from
    Kaggle is in the subfolder run/ of its outputs."""
    ledger = read_ledger(read_wait_settings().ledger)
    found = [*folder.glob(f"*/{RECORD}"), *folder.glob(f"*/run/{RECORD}")]
    places = sorted(path.parent.relative_to(folder) for path in found)
    return [_describe(folder / place, str(place), ledger) for place in places]


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
        table.add_row(*map(Text, astuple(line)))  # Text, because brackets in a name are not markup
    return table


def _describe(folder: Path, name: str, ledger: Ledger) -> RunLine:
    try:
        run = Run.existing(folder)
        origin, recipe = recall_origin(run), recall(folder)
        models, quick = run.count_models(), run.is_quick
    except InputError:
        return RunLine(name, "", "", "its record is damaged", "", "")
    merged = recipe.name if recipe else "not merged yet"
    merged += ", a quick look" if quick else ""
    return RunLine(
        name,
        origin.date if origin else "",
        str(models),
        merged,
        _read_score(run.scores),
        _find_at_kaggle(run, ledger),
    )


def _read_score(path: Path) -> str:
    """Return the mean of the ensemble's scores over its collections, as text; if they are not all
    collections, also their number. The text is empty if there are no scores yet, and DAMAGED if the
    file cannot be read."""
    if not path.is_file():
        return ""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file, strict=True)
            names, lines = table.fieldnames, list(table)
        merged = [float(line["score"]) for line in lines if is_merge(line["ranker"])]
    # the file was cut short or edited
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error):
        return DAMAGED
    if merged:
        mean = f"{sum(merged) / len(merged):.3f}"
        # means over different collections cannot be compared
        part = len(merged) < len(COLLECTIONS)
        return f"{mean} of {count(len(merged), 'collection')}" if part else mean
    # If no program could be held out, the table has only a header, which is valid.
    return DAMAGED if lines or not names else ""


def _find_at_kaggle(run: Run, ledger: Ledger) -> str:
    if not run.submission.is_file():
        return ""
    found = ledger.of_file(fingerprint_file(run.submission))
    return found[-1]["public"] or found[-1]["state"] if found else ""
