"""Make the tables that `fastslow compare` and `fastslow ensemble --search` print."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from ensembles.coverage import describe_absent
from ensembles.merge import alone, describe_caveats, describe_fit, score_recipes
from ensembles.recipe import Recipe, check_place, check_recipe, choose_recipe, make_file_recipe
from ensembles.search import (
    BEST,
    QUICK_FITS,
    WHOLE,
    Proposal,
    check_replaceable,
    list_candidates,
    search,
    write_recipe,
)
from ensembles.statistics import LEVEL, MEAN, compare, is_better
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.terminal import make_table


def show_comparison(run: Run, a: str, b: str) -> tuple[str, Table]:
    """Compare `a` and `b`, experiments of the run or recipes; return a sentence and the table.
    Raises InputError if a name is neither, or `a` and `b` have no collection in common."""
    if a == b:
        raise InputError(f"{a} is compared with itself. Give two different names.")
    recipes = _find(run, a, b)
    fitted = " ".join(filter(None, (describe_fit(run, recipe) for recipe in recipes.values())))
    caveats = dict.fromkeys(
        words
        for recipe in recipes.values()
        for words in (describe_absent(run, recipe), *describe_caveats(run, recipe))
        if words
    )
    lines = compare(score_recipes(run, recipes), a, b)
    shown = make_table(
        "Difference of scores, out of fold; above 0: the first is better",
        expendable=("Graphs", "Probability"),
        names=("Collection",), numbers=("Graphs", "Difference", "95% interval", "Probability"),
    )  # fmt: skip
    for line in lines.iter_rows(named=True):
        interval = "too few groups"
        if fitted:
            interval = "fitted on these"
        elif line["low"] is not None:
            interval = f"{line['low']:+.4f} to {line['high']:+.4f}"
        shown.add_row(
            f"mean of {len(lines) - 1}" if line["collection"] == MEAN else line["collection"],
            str(line["graphs"]),
            f"{line['difference']:+.4f}",
            interval,
            _show_probability(None if fitted else line["probability"]),
            style="bold" if line["collection"] == MEAN else "",
        )
    if fitted:
        verdict = (
            f"{fitted} So which of {a} and {b} is better cannot be told here: compare them on a "
            "run of other graphs, or see what `fastslow ensemble --search` says."
        )
    else:
        verdict = _judge(a, b, lines.row(-1, named=True))
    return " ".join([verdict, *caveats]), shown


def _judge(a: str, b: str, mean: dict[str, Any]) -> str:
    """Return a sentence that says which of `a` and `b` is better, or that this is not certain.
    `mean` is the row of `compare` for the mean over the collections."""
    if mean["low"] is None:
        return f"{a} against {b}: the groups of graphs are too few to tell which is better."
    difference = mean["difference"]
    if difference == 0:
        return f"{a} and {b} cannot be told apart: their mean scores are the same."
    better, worse = (a, b) if difference > 0 else (b, a)
    likely = max(mean["probability"], 1 - mean["probability"])
    if is_better(mean) is None:
        return (
            f"{a} and {b} cannot be told apart: {better} is {abs(difference):.4f} better here, and "
            f"on other graphs with probability {likely:.2f}; the 95% interval holds 0."
        )
    return f"{better} is better than {worse}, by {abs(difference):.4f} (probability {likely:.3f})."


def show_search(run: Run, fits: Sequence[str], out: Path) -> tuple[str, Table]:
    """Search a recipe of the run's experiments and write it to `out`; return advice and the table.
    The best candidate of the table is written. The last line has the score of the whole search, in
    which the candidate was chosen on other graphs than it was scored on."""
    fallback = "nothing_001" if "nothing_001" in run.experiments() else None
    members = [name for name in run.rankers() if name != fallback]
    if not members:
        raise InputError(f"{run.folder}: has no experiment to merge. Make a run with some.")
    if out.suffix != ".toml":
        raise InputError(f"{out}: expected a name that ends in .toml. Give another --out.")
    check_place(make_file_recipe(out, {"members": dict.fromkeys(members, 1.0)}), run.experiments())
    check_replaceable(out)
    proposal = search(run, members, list_candidates(fits=fits or QUICK_FITS))
    write_recipe(proposal, out, fallback, run)
    shown = make_table(
        "Mean over the collections, out of fold, of recipes that are fitted on other graphs",
        "Naive: fitted on the graphs it is scored on. Beats: probability to beat the best member "
        "of every collection, chosen on other graphs; Hindsight: chosen on the same graphs. "
        "search: the choice of the best line, made on other graphs too.",
        expendable=("Hindsight", "Naive", "Optimism"),
        names=("Candidate",), numbers=("Nested", "Naive", "Optimism", "Beats", "Hindsight"),
    )  # fmt: skip
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
    return _advise(proposal), shown


def _advise(proposal: Proposal) -> str:
    """Return advice: take the recipe, a single member, or the simpler of both if neither is surely
    better. It compares the nested score of the whole search with the best member's score."""
    lines = {line["candidate"]: line for line in proposal.candidates.iter_rows(named=True)}
    whole = lines[WHOLE]
    best = proposal.table.filter(pl.col("member") == BEST).group_by("collection")
    alone_score = float(best.agg(pl.col("score").mean())["score"].to_numpy().mean())
    said = f"{whole['nested']:.4f} against {alone_score:.4f} on graphs that it was not chosen on"
    if (whole["beats_best"] or 0) > 0.5 + LEVEL / 2:  # the interval of the gain excludes 0
        return f"Take the proposed recipe: it beats the best member alone, {said}."
    names = sorted({name for shares in proposal.shares().values() for name in shares})
    if len(names) == 1:
        return f"Take {names[0]} alone: no merge is better ({said})."
    return (
        f"The proposed recipe cannot be told from the best member alone ({said}): take the simpler."
    )


def _show_probability(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _find(run: Run, *names: str) -> dict[str, Recipe]:
    """Return a recipe for each name; an experiment becomes a recipe with one member. An
    experiment's seeds are averaged by the method of the other name's recipe. If both names are
    experiments, the method is that of the run's recipe."""
    given = {name: _find_recipe(run, name) for name in names if name not in run.experiments()}
    other = next(iter(given.values())) if given else choose_recipe(run, None)
    return {name: given.get(name) or alone(name, other.method) for name in names}


def _find_recipe(run: Run, name: str) -> Recipe:
    try:
        recipe = choose_recipe(run, name)
    except InputError as error:
        names = ", ".join(run.experiments())
        if Path(name).is_dir():
            raise InputError(
                f"{name}: is a folder. Two experiments or recipes of one run are compared: give "
                f"their names, and the run by --run. {run.folder} has {names}. To compare two "
                "versions of a model, train both in one run, under two names."
            ) from error
        raise InputError(f"{name!r} is no experiment of the run ({names}), and {error}") from error
    check_recipe(recipe, run.experiments())
    return recipe
