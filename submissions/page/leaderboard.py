"""The part of the page that sets out-of-fold scores against the leaderboard's."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import spearmanr

from solution.system.errors import InputError
from solution.system.wording import count
from submissions.ledger import read_number
from submissions.page.charts import Point, draw_scatter
from submissions.page.text import Section, Table, number

OUT_OF_FOLD = ("oof_mean", "out_of_fold", "oof", "cv")  # the names the column may have
ENOUGH = 4  # submissions for a correlation


@dataclass(frozen=True)
class Sent:
    """A submission with what is known of its scores."""

    key: str
    when: str
    recipe: str
    out_of_fold: float | None
    public: float | None
    private: float | None


def read_sent(path: Path) -> list[Sent]:
    """The submissions in a ledger, whatever further columns it has; none where there is no file.

    Raises:
        InputError: it is no CSV file.
    """
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.DictReader(file, restval=""))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path}: expected a CSV file with a header, but: {error}. Repair it: git checkout "
            f"{path}"
        ) from error
    return [
        Sent(
            line.get("key") or f"line {place}",
            line.get("when") or "",
            line.get("recipe") or "",
            next((v for n in OUT_OF_FOLD if (v := read_number(line.get(n))) is not None), None),
            read_number(line.get("public")),
            read_number(line.get("private")),
        )
        for place, line in enumerate(lines, start=2)
    ]


def describe_leaderboard(path: Path) -> Section:
    """Out-of-fold scores against public and private ones."""
    title, anchor = "Out of fold against the leaderboard", "leaderboard"
    sent = read_sent(path)
    both = [s for s in sent if s.out_of_fold is not None and (s.public, s.private) != (None, None)]
    if not both:
        there = f"{count(len(sent), 'line')}, none of which" if sent else "no line that"
        return Section(
            anchor,
            title,
            f"The ledger, {path.name}, has {there} has both an out-of-fold score and one of "
            "Kaggle’s. Submit with `make submit`, then fetch the scores with `make scores`.",
        )
    figures, lead = [], ["A choice by out-of-fold score is good if these rise together."]
    for name in ("public", "private"):
        points = [
            Point(f"{s.recipe or s.key}", s.out_of_fold, found)
            for s in both
            if s.out_of_fold is not None and (found := getattr(s, name)) is not None
        ]
        if points:
            figures.append(draw_scatter(f"{name} score", points, ("out of fold", name)))
        if len(points) >= ENOUGH:
            rho = float(spearmanr([p.x for p in points], [p.y for p in points]).statistic)
            if math.isfinite(rho):
                lead.append(f"Rank correlation with the {name} score: {number(rho)}.")
    columns = ["Submission", "When", "Recipe", "Out of fold", "Public", "Private"]
    rows = [
        [s.key, s.when, s.recipe, number(s.out_of_fold), number(s.public), number(s.private)]
        for s in sent
    ]
    return Section(
        anchor,
        title,
        " ".join(lead),
        figures,
        [Table(f"{count(len(sent), 'submission')} in {path.name}", columns, rows, texts=3)],
        "A dot is a submission; on the dashed line both scores are equal.",
    )
