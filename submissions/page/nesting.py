"""The page's part on how optimistic the score of fitted weights is."""

import math

from ensembles.ballots import read_ballots
from ensembles.nested import estimate, mean_of_collections
from ensembles.search import QUICK_FITS, drop_constants, list_candidates
from solution.domain import predictions
from submissions.page.charts import Pair, draw_pairs
from submissions.page.evidence import Evidence
from submissions.page.text import Section, Table, number, signed

TITLE, ANCHOR = "How much fitted weights flatter", "optimism"
NEEDED = ("group", "labelled")
GREEDY = "greedy"
MAX_GREEDY = 3000  # members times graphs; greedy selection scores each many times


def describe_optimism(evidence: Evidence) -> Section:
    """Return the section: weights scored on the graphs that they were fitted on, and on others."""
    rows = _estimate(evidence)
    if not rows:
        return Section(
            ANCHOR,
            TITLE,
            "Not known for this run: it takes two members that rank something, and labelled graphs "
            "of at least two groups in a collection. Add experiments or graphs, and run again.",
        )
    table = [
        [n, number(nested), number(naive), signed(naive - nested)] for n, nested, naive in rows
    ]
    pairs = [Pair(name, nested, naive) for name, nested, naive in rows]
    figure = draw_pairs("mean of the collections", pairs, ("on other graphs", "on the same graphs"))
    return Section(
        ANCHOR,
        TITLE,
        "Weights that are fitted and scored on the same graphs look better than they are. Here "
        f"the members are weighted in {len(rows)} ways, merged by "
        f"{evidence.recipe.method.replace('_', ' ')}, and each way is scored twice: on the graphs "
        "that it was fitted on, and on graphs of groups that it has not seen. A group is what "
        "stays together in a fold of this run.",
        [figure],
        [Table("Fitted weights", ["Fit", "On other graphs", "On the same", "Optimism"], table)],
        "A dot is the score on other graphs, a ring the one on the same graphs; the line between "
        "them is the optimism.",
        notes=[
            "The weights of a recipe are as honest as their origin: if they were fitted on this "
            "run, its scores above hold some of this optimism. Greedy selection is left out "
            "where it would take long. `fastslow ensemble --search` fits "
            "weights and says what they reach on other graphs."
        ],
    )


def _estimate(evidence: Evidence) -> list[tuple[str, float, float]]:
    """Return the name of each fit, its nested mean and its naive mean."""
    fallback = evidence.recipe.fallback
    names = [n for n in evidence.members if n not in (fallback, evidence.ensemble)]
    known = predictions.read(evidence.run.graphs).columns
    if not names or not set(NEEDED) <= set(known):
        return []
    members, ballots = read_ballots(evidence.run, names, [evidence.recipe.method])
    members, ballots = drop_constants(members, ballots)
    if not any(len(own) > 1 for own in members.values()):
        return []
    rows = []
    large = sum(len(members[ballot.collection]) for ballot in ballots) > MAX_GREEDY
    fits = [name for name in QUICK_FITS if not (large and name == GREEDY)]
    for candidate in list_candidates([evidence.recipe.method], fits, [0.0]):
        found = estimate(ballots, candidate.learn())
        nested, naive = (mean_of_collections(ballots, s) for s in (found.nested, found.naive))
        if math.isfinite(nested) and math.isfinite(naive):
            rows.append((candidate.fit.replace("_", " "), nested, naive))
    return rows
