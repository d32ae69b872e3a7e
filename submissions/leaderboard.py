"""Show the public leaderboard around our score."""

from rich.table import Table
from rich.text import Text

from solution.system.terminal import make_table
from submissions.kaggle import Place
from submissions.ledger import Ledger, read_number

AROUND = 8  # rows above and below
TOP = 3


def find_rank(places: list[Place], score: float) -> int:
    """Return the rank, from 1, that `score` would have; higher is better, equal ones rank before
    it."""
    return 1 + sum(place.score is not None and place.score >= score for place in places)


def best_public(ledger: Ledger) -> float | None:
    """Return our best public score in the ledger."""
    scores = [read_number(line["public"]) for line in ledger.lines]
    return max((score for score in scores if score is not None), default=None)


def tabulate_leaderboard(places: list[Place], ours: float | None) -> Table:
    """Return a table of the top, and of the ranks around our score (or after the top, without
    one)."""
    table = make_table(f"Public leaderboard, {len(places)} teams")
    table.add_column("Place", justify="right")
    table.add_column("Team", overflow="ellipsis", no_wrap=True, max_width=50)
    table.add_column("Public", justify="right")
    rank = TOP + AROUND if ours is None else find_rank(places, ours)
    last = 0
    for number, place in enumerate(places, start=1):
        if number == rank and ours is not None:
            _add_ours(table, rank, ours)
        if number <= TOP or rank - AROUND <= number < rank + AROUND:
            if number > last + 1:
                table.add_row("...", "", "")
            shown = "" if place.score is None else f"{place.score:.5f}"
            table.add_row(str(number), Text(place.teamName or ""), shown)
            last = number
    if ours is not None and rank > len(places):
        _add_ours(table, rank, ours)
    return table


def _add_ours(table: Table, rank: int, score: float) -> None:
    table.add_row(f"({rank})", "our best submission", f"{score:.5f}", style="bold green")
