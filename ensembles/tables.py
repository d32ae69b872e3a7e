"""What `fastslow compare` and `fastslow ensemble --search` show."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ensembles.recipe import Recipe, check_recipe, find_recipe
from ensembles.scoring import alone, score_recipes
from ensembles.search import QUICK_FITS, list_candidates, search, write_recipe
from ensembles.statistics import MEAN, compare
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.terminal import make_table


def show_comparison(run: Run, a: str, b: str) -> Table:
    """How much better `a` is than `b` out of fold; each an experiment of the run or a recipe.

    Raises InputError where one is neither, or they have no collection in common.
    """
    if a == b:
        raise InputError(f"{a} is compared with itself. Give two different names.")
    table = score_recipes(run, {a: _find(run, a), b: _find(run, b)})
    shown = make_table(f"{a} against {b}, out of fold; above 0: {a} is better")
    for name in ("Collection", "Graphs", "Difference", "95% interval", "Probability"):
        shown.add_column(name, justify="left" if name == "Collection" else "right", no_wrap=True)
    for line in compare(table, a, b).iter_rows(named=True):
        interval = "too few graphs"
        if line["low"] is not None:
            interval = f"{line['low']:+.4f} to {line['high']:+.4f}"
        shown.add_row(
            "mean of these" if line["collection"] == MEAN else line["collection"],
            str(line["graphs"]),
            f"{line['difference']:+.4f}",
            interval,
            _show_probability(line["probability"]),
            style="bold" if line["collection"] == MEAN else "",
        )
    return shown


def show_search(run: Run, fits: Sequence[str], out: Path) -> Table:
    """Search a recipe among the run's experiments and write it to `out`.

    The best of the table's candidates is written; what such a choice is worth is its last line.
    """
    fallback = "nothing_001" if "nothing_001" in run.experiments() else None
    members = [name for name in run.experiments() if name != fallback]
    if not members:
        raise InputError(f"{run.folder}: has no experiment to merge. Make a run with some.")
    if out.suffix != ".toml":
        raise InputError(f"{out}: expected a name that ends in .toml. Give another --out.")
    proposal = search(run, members, list_candidates(fits=fits or QUICK_FITS))
    write_recipe(proposal, out, fallback)
    shown = make_table(
        "Mean over the collections, out of fold, of recipes that are fitted on other graphs",
        "Naive: fitted on the graphs it is scored on. Beats: probability to beat the best member "
        "of every collection, that being chosen on other graphs or in hindsight. search: the "
        "choice of the best line, made on other graphs too.",
    )
    for name in ("Candidate", "Nested", "Naive", "Optimism", "Beats", "Hindsight"):
        shown.add_column(name, justify="left" if name == "Candidate" else "right", no_wrap=True)
    for line in proposal.candidates.iter_rows(named=True):
        shown.add_row(
            line["candidate"],
            f"{line['nested']:.4f}",
            f"{line['naive']:.4f}",
            f"{line['optimism']:+.4f}",
            _show_probability(line["beats_best"]),
            _show_probability(line["beats_hindsight"]),
            style="bold" if line["candidate"] == proposal.candidate.name else "",
        )
    return shown


def _show_probability(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _find(run: Run, name: str) -> Recipe:
    if name in run.experiments():
        return alone(name)
    try:
        recipe = find_recipe(name)
    except InputError as error:
        names = ", ".join(run.experiments())
        raise InputError(f"{name!r} is no experiment of the run ({names}), and {error}") from error
    check_recipe(recipe, run.experiments())
    return recipe
