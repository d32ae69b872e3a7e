"""Build the page's sections on scores: means, single graphs, and the leaderboard."""

from pathlib import Path

import polars as pl

from solution.domain.collection import Collection
from solution.system.wording import count
from submissions.kaggle import read_number
from submissions.ledger import Line, read_ledger
from submissions.page.charts import Point, Row, draw_intervals, draw_scatter, draw_strips
from submissions.page.evidence import (
    NOTHING,
    Evidence,
    PageTable,
    Section,
    interval,
    listed,
    number,
)
from submissions.scores import KAGGLES, correlate

FLOOR = -1.0  # lower scores are drawn at this one, because a top-5 score has no lower bound
MAX_GRAPHS = 1000  # maximum rows of a table of graphs; it keeps the ensemble's lowest scores
LOWEST = 3  # number of graphs with the lowest scores that the text names
COLUMNS = ["Submission", "When", "Recipe", "Out of fold", "Public", "Private"]


def describe_scores(evidence: Evidence) -> Section:
    """Return the section with the score table and intervals."""
    figures = []
    for c in evidence.collections:
        means = _pictured(evidence, c)
        graphs = count(max(int(mean["graphs"]) for mean in means), "graph")
        rows = [_row(evidence, mean) for mean in means]
        figures.append(draw_intervals(c.name, rows, f"{c.metric}, {graphs}"))
    return Section(
        "scores",
        "Scores",
        "Out of fold: no model predicts a graph that it has seen. Kendall’s tau for layout, the "
        "top-5 score for tile, as Kaggle scores them; higher is better.",
        figures,
        [_tabulate(evidence)],
        "A dot is the mean over graphs, its line the 95% interval over "
        f"{_name_groups(evidence)}. The axes of the figures differ; the recipe’s fallback is only "
        "in the table.",
        unfolded=True,
        notes=[
            "Seeds: the standard deviation of the score from one training seed to another, which "
            "the interval does not include."
        ],
    )


def _name_groups(evidence: Evidence) -> str:
    """Return, in words, which graphs the run's scheme keeps in the same fold."""
    kept = {
        "family": "families of programs, such as all ResNets",
        "graph": "graphs, also where several are one program at different sizes",
    }
    scheme = str(evidence.run.record()["settings"].get("scheme"))
    return kept.get(scheme, "programs, each with all its sizes")


def describe_graphs(evidence: Evidence) -> Section:
    """Return the section with strip plots: a dot for each graph."""
    figures, tables = [], []
    for collection in evidence.collections:
        rows = [
            (_row(evidence, mean), evidence.scores_of(collection.name, str(mean["member"])))
            for mean in _pictured(evidence, collection)
        ]
        figures.append(draw_strips(f"{collection.name}, {collection.metric}", rows, FLOOR))
        tables.append(_tabulate_graphs(evidence, collection))
    return Section(
        "graphs",
        "Graph by graph",
        f"A mean hides which graphs fail. {_name_lowest(evidence)}",
        figures,
        tables,
        "A dot is a graph, the line the mean. Dots that would cover each other are stacked, at "
        "most 20 high.",
    )


def _pictured(evidence: Evidence, collection: Collection) -> list[dict[str, float]]:
    """Return the mean scores of the members to draw. The recipe's fallback, which ranks collections
    without a member, is left out unless it has a weight: its low score would compress the figure.
    """
    means = list(evidence.means_of(collection.name))
    recipe = evidence.recipe
    hidden = {recipe.fallback} - set(recipe.weights(collection.name))
    return [mean for mean in means if mean["member"] not in hidden] or means


def _row(evidence: Evidence, mean: dict[str, float]) -> Row:
    name = str(mean["member"])
    return Row(name, mean["value"], mean["low"], mean["high"], name == evidence.ensemble)


def _tabulate(evidence: Evidence) -> PageTable:
    by_seed = evidence.of_run.seeds.group_by("collection", "member", "seed").agg(
        pl.col("score").mean()
    )
    spread = by_seed.group_by("collection", "member").agg(pl.col("score").std(), seeds=pl.len())
    shown = {(c, name): f"±{number(std)} ({seeds})" for c, name, std, seeds in spread.iter_rows()}
    rows = []
    for collection in evidence.collections:
        for mean in evidence.means_of(collection.name):
            key = (collection.name, str(mean["member"]))
            row = [number(mean["value"]), interval(mean["low"], mean["high"])]
            otherwise = NOTHING if key[1] == evidence.ensemble else "one"
            rows.append([*key, *row, f"{mean['graphs']:,}", shown.get(key, otherwise)])
    for member in evidence.members:
        overall = evidence.overall(member)
        if overall is not None:
            between = interval(overall.low, overall.high)
            row = [number(overall.value), between, f"{overall.graphs:,}"]
            rows.append(["mean of the five", member, *row, NOTHING])
    columns = ["Collection", "Ranker", "Score", "95% interval", "Graphs", "Seeds"]
    return PageTable("Score table", columns, rows, texts=2, strong=evidence.ensemble, grouped=True)


def _tabulate_graphs(evidence: Evidence, collection: Collection) -> PageTable:
    scores = evidence.scores.filter(pl.col("collection") == collection.name)
    members = [name for name in evidence.members if name in set(scores["member"])]
    wide = scores.pivot("member", index="graph", values="score").select("graph", *members)
    order = evidence.ensemble if evidence.ensemble in members else members[-1]
    shown = wide.sort(order, "graph").head(MAX_GRAPHS)
    left_out = len(wide) - len(shown)
    more = f", the {len(shown)} lowest; {left_out:,} more are not listed" if left_out else ""
    rows = [[name, *map(number, values)] for name, *values in shown.iter_rows()]
    caption = f"{collection.name}: {count(len(wide), 'graph')}, from the lowest{more}"
    return PageTable(caption, ["Graph", *members], rows)


def _name_lowest(evidence: Evidence) -> str:
    layout = [c.name for c in evidence.collections if c.kind == "layout"]
    scores = evidence.scores.filter(
        pl.col("member") == evidence.ensemble, pl.col("collection").is_in(layout)
    )
    if scores.is_empty():
        return "The tables list the lowest graphs first."
    lowest = scores.sort("score", "graph").head(LOWEST).select("graph", "collection", "score")
    shown = [f"{graph} in {name} ({number(score)})" for graph, name, score in lowest.iter_rows()]
    return f"The ensemble’s lowest layout graphs are {listed(shown)}."


def describe_leaderboard(path: Path) -> Section:
    """Return the section that compares out-of-fold scores with Kaggle's, from a ledger file."""
    heading = "leaderboard", "Out of fold against the leaderboard"
    ledger = read_ledger(path)
    sent = ledger.lines
    points = {name: [p for line in sent if (p := _find_point(line, name))] for name in KAGGLES}
    if not any(points.values()):
        lines = f"{count(len(sent), 'line')}, none of which" if sent else "no line that"
        return Section(
            *heading,
            f"The ledger, {path.name}, has {lines} has both an out-of-fold score and one of "
            "Kaggle’s. Submit with `make submit`, then fetch the scores with `make scores`.",
        )
    lead = ["Choosing by out-of-fold score works if it rises together with Kaggle’s."]
    for name in KAGGLES:
        ranks = correlate(ledger, name).ranks
        if ranks is not None:
            lead.append(f"Rank correlation with the {name} score: {number(ranks)}.")
    figures = [
        draw_scatter(f"{name} score", dots, ("out of fold", name))
        for name, dots in points.items()
        if dots
    ]
    rows = []
    for line in sent:
        numbers = [number(read_number(line[name])) for name in ("oof_mean", *KAGGLES)]
        rows.append([line["key"], line["when"], line["recipe"], *numbers])
    table = PageTable(f"{count(len(sent), 'submission')} in {path.name}", COLUMNS, rows, texts=3)
    reading = "A dot is a submission; on the dashed line both scores are equal."
    return Section(*heading, " ".join(lead), figures, [table], reading)


def _find_point(line: Line, name: str) -> Point | None:
    """Return a submission's out-of-fold score and Kaggle's score `name` as a point; None if the row
    lacks one of them."""
    ours, theirs = read_number(line["oof_mean"]), read_number(line[name])
    if ours is None or theirs is None:
        return None
    return Point(line["recipe"] or line["key"], ours, theirs)
