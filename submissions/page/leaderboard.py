"""The page's part that compares out-of-fold scores with the leaderboard's."""

from pathlib import Path

from solution.system.wording import count
from submissions.ledger import Line, read_ledger, read_number
from submissions.page.charts import Point, draw_scatter
from submissions.page.text import Section, Table, number
from submissions.scores import KAGGLES, correlate

COLUMNS = ["Submission", "When", "Recipe", "Out of fold", "Public", "Private"]


def describe_leaderboard(path: Path) -> Section:
    """Return the section on out-of-fold scores against public and private ones.

    Raises InputError if the file is no ledger.
    """
    title, anchor = "Out of fold against the leaderboard", "leaderboard"
    ledger = read_ledger(path)
    sent = ledger.lines
    points = {name: [p for line in sent if (p := _place(line, name))] for name in KAGGLES}
    if not any(points.values()):
        there = f"{count(len(sent), 'line')}, none of which" if sent else "no line that"
        return Section(
            anchor,
            title,
            f"The ledger, {path.name}, has {there} has both an out-of-fold score and one of "
            "Kaggle’s. Submit with `make submit`, then fetch the scores with `make scores`.",
        )
    lead = ["A choice by out-of-fold score is good if these rise together."]
    for name in KAGGLES:
        ranks = correlate(ledger, name).ranks
        if ranks is not None:
            lead.append(f"Rank correlation with the {name} score: {number(ranks)}.")
    return Section(
        anchor,
        title,
        " ".join(lead),
        [
            draw_scatter(f"{name} score", own, ("out of fold", name))
            for name, own in points.items()
            if own
        ],
        [Table(f"{count(len(sent), 'submission')} in {path.name}", COLUMNS, _tabulate(sent), 3)],
        "A dot is a submission; on the dashed line both scores are equal.",
    )


def _place(line: Line, name: str) -> Point | None:
    """Return the submission's point for one of Kaggle's scores, if it has both scores."""
    own, theirs = read_number(line["oof_mean"]), read_number(line[name])
    if own is None or theirs is None:
        return None
    return Point(line["recipe"] or line["key"], own, theirs)


def _tabulate(sent: list[Line]) -> list[list[str]]:
    return [
        [
            *(line[name] for name in ("key", "when", "recipe")),
            *(number(read_number(line[name])) for name in ("oof_mean", *KAGGLES)),
        ]
        for line in sent
    ]
