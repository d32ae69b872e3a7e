"""Bound the gain of merging a run's members over the best member, for any way to weigh them.

    python -m benchmarks.merge_limits RUN --parts 6

The layout collections. All weights that are multiples of 1 / parts are tried, and the best are
chosen: on programs of other groups (nested: realistic); on the scored programs themselves, once for
all collections, or once for each (in hindsight: an upper bound for fixed weights); and for each
program by half of its labels, scored on the other half, both ways round (this uses labels of the
scored program). The last row chooses each program's weights by the same labels that score them,
which is no rule: it is optimistic by their noise. Means over collections of Kendall's tau, with 95%
intervals over groups.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from ensembles.search import divide
from ensembles.statistics import mean_over_collections
from ensembles.weights import Ballot, read_ballots
from solution.domain.collection import LAYOUT
from solution.runs.folder import Run
from solution.system.terminal import output

METHOD = "z_score"


def list_weights(members: int, parts: int) -> np.ndarray:
    """Return all weights (weights, members) that are multiples of 1 / parts and sum to 1."""
    chosen = combinations_with_replacement(range(members), parts)
    return np.array([np.bincount(each, minlength=members) for each in chosen]) / parts


def score_all(ballots: Sequence[Ballot], weights: np.ndarray) -> np.ndarray:
    """Return scores (weights, ballots)."""
    return np.array([[ballot.score(own, METHOD) for ballot in ballots] for own in weights])


def halve(ballot: Ballot, first: int) -> Ballot:
    """Return every other configuration, scaled by the whole list (which needs no labels)."""
    votes = {method: vote[:, first::2] for method, vote in ballot.votes.items()}
    targets = {method: target[first::2] for method, target in ballot.targets.items()}
    runtimes = ballot.runtimes[first::2]
    return replace(ballot, votes=votes, targets=targets, runtimes=runtimes, _scores={})


def weigh_collections(ballots: Sequence[Ballot]) -> np.ndarray:
    """Return each ballot's weight (ballots,) in a mean over collections."""
    names = [ballot.collection for ballot in ballots]
    return np.array([1 / names.count(name) for name in names]) / len(set(names))


def choose(
    scores: np.ndarray, counts: np.ndarray, parts: np.ndarray, *, nested: bool = False
) -> np.ndarray:
    """Return scores (ballots,) by the weights that are best on their part, or (nested) on all
    others."""
    found = np.empty(scores.shape[1])
    for part in np.unique(parts):
        own = parts == part
        seen = ~own if nested else own
        found[own] = scores[np.argmax(scores[:, seen] @ counts[seen]), own]
    return found


def choose_by_halves(ballots: Sequence[Ballot], weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Choose by one half of each program, score the other (ballots,); and scores (weights,
    ballots) of all."""
    even, odd = (
        score_all([halve(ballot, first) for ballot in ballots], weights) for first in (0, 1)
    )
    places = np.arange(len(ballots))
    chosen = odd[even.argmax(axis=0), places] + even[odd.argmax(axis=0), places]
    return chosen / 2, (even + odd) / 2


def compare(
    ballots: Sequence[Ballot], weights: np.ndarray
) -> tuple[int, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return the best member's index; by choice, its scores (ballots,) and that member's."""
    scores, counts = score_all(ballots, weights), weigh_collections(ballots)
    names = np.array([ballot.collection for ballot in ballots])
    once = np.zeros(len(ballots))
    alone = np.flatnonzero((weights == 1).any(axis=1))
    best = int(alone[np.argmax(scores[alone] @ counts)])
    by_half, of_halves = choose_by_halves(ballots, weights)
    found = {
        "chosen on other programs": choose(scores, counts, divide(ballots), nested=True),
        "in hindsight": choose(scores, counts, once),
        "in hindsight, by collection": choose(scores, counts, names),
        "by the labels that score": choose(scores, counts, np.arange(len(ballots))),
    }
    rows = {label: (own, scores[best]) for label, own in found.items()}
    rows["by half of a program's own labels"] = by_half, of_halves[best]
    return int(weights[best].argmax()), rows


def main(
    run: Annotated[Path, typer.Argument(help="A run with out-of-fold predictions.")],
    member: Annotated[list[str], typer.Option(help="Merged; all layout members otherwise.")] = [],  # noqa: B006
    parts: Annotated[int, typer.Option(help="Weights are multiples of one part.")] = 6,
) -> None:
    """Print the gain of each choice of weights over the best member."""
    members = sorted(member or [path.name for path in run.glob("layout_*") if path.is_dir()])
    names, ballots = read_ballots(Run.existing(run), members, [METHOD])
    ballots = [ballot for ballot in ballots if ballot.collection in LAYOUT]
    if any(names[name] != members for name in LAYOUT):
        raise typer.BadParameter(f"not all of {', '.join(members)} rank all layout collections")
    weights = list_weights(len(members), parts)
    best, rows = compare(ballots, weights)
    keys = pl.DataFrame([(each.collection, each.graph, each.group) for each in ballots],
                        schema=["collection", "graph", "group"], orient="row")  # fmt: skip

    def mean(values: np.ndarray) -> str:
        return f"{mean_over_collections(keys.with_columns(score=pl.Series(values))):.4f}"

    table = [
        {"weights": label, "mean": mean(found), "best alone": mean(beside),
         "gain": mean(found - beside)}
        for label, (found, beside) in rows.items()
    ]  # fmt: skip
    output.print(f"{len(weights)} weights of {len(members)} members; alone {members[best]} is best")
    with pl.Config(tbl_cols=-1, tbl_width_chars=160, fmt_str_lengths=40):
        output.print(pl.DataFrame(table))


if __name__ == "__main__":
    typer.run(main)
