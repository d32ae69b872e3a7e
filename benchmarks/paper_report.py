"""Report the results of `make papers`: tables on the screen, in docs/results.md and the log; a
plot."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from rich.table import Table

from benchmarks.paper_systems import LAYOUT_SYSTEMS, ORDERS, TILE_SYSTEMS
from ensembles.statistics import mean_over_collections
from solution.domain.collection import LAYOUT, TILE
from solution.domain.metrics import Mean
from solution.system.files import write_bytes
from solution.system.pictures import save_figure
from solution.system.terminal import make_table

BEGIN, END = "<!-- written by {} -->", "<!-- end of what {} wrote -->"
PLOT = Path("solution/experiments/papers.png")
KINDS = (("layout", LAYOUT, LAYOUT_SYSTEMS), ("tile", TILE, TILE_SYSTEMS))
OURS = ("our net", "our trees")
HELD_OUT = {"architecture": "Mean (95%)", "family": "Relatives held out (95%)"}  # by scheme
LEFT_OUT = ("OPA", "ListMLE", "Epochs")  # columns that only the log has
MOST_NAMES = 20  # names that fit beside a plot

Points = dict[str, list[tuple[float, float]]]  # seconds and score, by system


def of_graphs(scores: pl.DataFrame, column: str = "score") -> pl.DataFrame:
    """Return system, collection, graph, group and the mean over seeds, for each system's largest
    budget; the scores are those of one scheme."""
    most = pl.col("budget") == pl.col("budget").max().over("system", "collection")
    return (
        scores.filter(most)
        .group_by("system", "collection", "graph", "group")
        .agg(pl.col(column).mean())
        .sort("system", "collection", "graph")
    )


def mean_over(graphs: pl.DataFrame, collections: Sequence[str], column: str) -> Mean:
    """Return the mean of the collections' means, with an interval over groups of graphs.

    The mean is NaN if a system lacks scores of one of the collections, the interval if there are
    too few groups (ensembles.statistics).
    """
    own = graphs.filter(pl.col("collection").is_in(collections))
    if own["collection"].n_unique() < len(collections):
        return Mean(math.nan, math.nan, math.nan, 0)
    return mean_over_collections(own.select("collection", "graph", "group", score=column))


def mean_score(scores: pl.DataFrame, collections: Sequence[str]) -> str:
    """Return a system's mean score in words, with the interval's upper end cut at 1."""
    mean = mean_over(of_graphs(scores), collections, "score")
    return say(replace(mean, high=min(mean.high, 1.0)), ".3f")


def say(mean: Mean, spec: str) -> str:
    """Return a mean with its interval, if there is one; nothing if there is no mean."""
    if math.isnan(mean.value):
        return ""
    return f"{mean.value:{spec}}" if math.isnan(mean.low) else f"{mean:{spec}}"


def find_schemes(scores: pl.DataFrame) -> list[str]:
    """Return the schemes of the scores: by architecture, then by family."""
    return [scheme for scheme in HELD_OUT if scheme in scores["scheme"]]


def tabulate(
    scores: pl.DataFrame, collections: Sequence[str], systems: Iterable[str]
) -> list[list[str]]:
    """Return a header and a row per system: collections, a mean for each scheme, other measures,
    seconds, epochs. All but the mean by family are by architecture."""
    shown = list(collections) if len(collections) > 1 else []
    schemes = find_schemes(scores)
    header = ["System", *(name.removeprefix("layout:") for name in shown)]
    header += [HELD_OUT[scheme] for scheme in schemes]
    rows = [[*header, "OPA", "ListMLE", "Top-5 slowdown", "Seconds", "Epochs"]]
    for system in systems:
        both = scores.filter(pl.col("system") == system, pl.col("collection").is_in(collections))
        own = both.filter(scheme="architecture")
        if own.is_empty():
            continue
        means = [mean_score(own, [name]) for name in shown]
        means += [mean_score(both.filter(scheme=scheme), collections) for scheme in schemes]
        if set(own["collection"]) < set(collections):
            rows.append([system, *means, *[""] * 5])
            continue
        others = [
            mean_over(of_graphs(own, name), collections, name).value
            for name in ("OPA", "ListMLE", "slowdown", "seconds", "epochs")
        ]
        cells = [f"{others[0]:.3f}", f"{others[1]:.2f}", f"{others[2]:.1%}", f"{others[3]:.1f}"]
        rows.append([system, *means, *cells, f"{others[4]:.0f}" if others[4] else ""])
    return rows


def show_scores(scores: pl.DataFrame) -> list[Table]:
    """Print a table for layout and one for tile."""
    tables = []
    for kind, collections, systems in KINDS:
        rows = tabulate(scores, collections, systems)
        tables.append(show(f"{kind}, out of fold, mean over seeds", rows))
    return tables


def compare(scores: pl.DataFrame) -> list[list[str]]:
    """Return a header and a row for each order of two systems that the documents report: the
    difference and the verdict, for each scheme."""
    schemes = find_schemes(scores)
    titles = {"architecture": "Difference (95%)", "family": HELD_OUT["family"]}
    rows = [["Expected at least as good", "as"]]
    rows[0] += [title for scheme in schemes for title in (titles[scheme], "Here")]
    graphs = {scheme: of_graphs(scores.filter(scheme=scheme)) for scheme in schemes}
    for collections, better, worse in ORDERS:
        cells = []
        for scheme in schemes:
            first, second = (graphs[scheme].filter(system=name) for name in (better, worse))
            both = first.join(second, on=["collection", "graph", "group"])
            gap = both.with_columns(gap=pl.col("score") - pl.col("score_right"))
            mean = mean_over(gap, collections, "gap")
            cells += [say(mean, "+.3f"), "" if math.isnan(mean.value) else say_verdict(mean)]
        if any(cells):
            rows.append([better, worse, *cells])
    return rows


def say_verdict(mean: Mean) -> str:
    """Return whether a claim with this gain holds, in words."""
    if mean.low > 0:
        return "holds"
    return "does not hold" if mean.high < 0 else "cannot be told"


def show_orders(scores: pl.DataFrame) -> Table:
    """Print the documents' claims about pairs of systems, with the results here."""
    return show("What the documents report, checked", compare(scores))


def list_costs(costs: pl.DataFrame) -> list[list[str]]:
    """Return a header and a row per system."""
    rows = [["System", "Kind", "Parameters", "Scored per s", "Peak memory", "Published"]]
    for kind, _, systems in KINDS:
        for name, system in systems.items():
            for row in costs.filter(system=name, kind=kind).iter_rows(named=True):
                parameters = f"{row['parameters']:,}" if row["parameters"] else ""
                speed, memory = row["configs_per_second"], row["megabytes"]
                cells = [parameters, f"{speed:,.0f}", f"{memory:,.0f} MB", system.published]
                rows.append([name, kind, *cells])
    return rows


def show_costs(costs: pl.DataFrame) -> Table:
    """Print the cost of each system, and its document's numbers."""
    return show("Costs, each alone: one epoch, or one fit of trees", list_costs(costs))


def write_report(scores: pl.DataFrame, costs: pl.DataFrame, folder: Path) -> None:
    """Write the tables between the marks in docs/results.md and the log, and draw the plot."""
    short, full = [], []
    for kind, collections, systems in KINDS:
        rows = tabulate(scores, collections, systems)
        kept = [at for at, name in enumerate(rows[0]) if name not in LEFT_OUT]
        brief = [[_shorten(row[at], rows[0][at]) for at in kept] for row in rows]
        short.append(as_markdown(brief, kind))
        full.append(as_markdown(rows, kind))
    replace_between(folder / "docs" / "results.md", "\n\n".join(short))
    tables = [*full, as_markdown(compare(scores), ""), as_markdown(list_costs(costs), "")]
    replace_between(folder / "solution/experiments/LOG.md", "\n\n".join(tables))
    save_figure(draw(list_points(scores.filter(scheme="architecture"))), folder / PLOT)


def _shorten(cell: str, column: str) -> str:
    """Remove the interval from a cell of a single collection."""
    return cell.partition(" (")[0] if ":" in column and ":" not in cell else cell


def replace_between(path: Path, text: str, command: str = "make papers") -> None:
    """Write `text` between the marks of the command; raise ValueError if there are none."""
    marks = BEGIN.format(command), END.format(command)
    before, begin, rest = path.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not end:
        raise ValueError(f"{path}: expected the lines {marks[0]!r} and {marks[1]!r}")
    write_bytes(f"{before}{begin}\n{text}\n{end}{after}".encode(), path)


def as_markdown(rows: list[list[str]], corner: str) -> str:
    """Return a Markdown table whose first cell is `corner`, unless empty; our systems are bold."""
    header, *body = rows
    lines = [[corner or header[0], *header[1:]], ["---"] * len(header)]
    lines += [[f"**{row[0]}**", *row[1:]] if row[0] in OURS else row for row in body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def list_points(scores: pl.DataFrame) -> dict[str, Points]:
    """Return, by kind, each system's points: seconds of a fit and mean score, for each budget."""
    found: dict[str, Points] = {kind: {} for kind, _, _ in KINDS}
    for kind, collections, systems in KINDS:
        for name in systems:
            own = scores.filter(pl.col("system") == name, pl.col("collection").is_in(collections))
            for _, part in own.group_by("budget", maintain_order=True):
                mean = mean_over(of_graphs(part), collections, "score").value
                seconds = float(part["seconds"].mean())  # type: ignore[arg-type]
                found[kind].setdefault(name, []).append((seconds, mean))
    return found


def draw(points: Mapping[str, Points]) -> Figure:
    """Draw each system's mean score against the seconds of a fit; a line if it has several
    budgets."""
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    for axes, (kind, systems) in zip(figure.subplots(1, 2), points.items(), strict=True):
        for name, own in systems.items():
            x, y = zip(*sorted(own), strict=True)
            marker, size = ("*", 12) if name in OURS else ("o", 6)
            axes.plot(x, y, marker=marker, ms=size, lw=1.2, color=_colour(name))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("seconds of a fit, one thread")
        metric = "Kendall's tau, mean of four collections" if kind == "layout" else "top-5 score"
        axes.set_ylabel(f"{metric}, structures held out")
        axes.set_title(f"{kind}: score against training time")
        axes.spines[["top", "right"]].set_visible(False)
        _name_points(axes, {name: max(own) for name, own in systems.items()})
    return figure


def _name_points(axes: Axes, ends: Mapping[str, tuple[float, float]]) -> None:
    """Write a name for each dot beside the axes, in the order of the scores, joined by a thin
    line."""
    low, high = axes.get_ylim()
    gap = (high - low) / MOST_NAMES
    names = sorted(ends, key=lambda name: -ends[name][1])
    place, places = math.inf, []
    for name in names:
        place = min(ends[name][1], place - gap)
        places.append(place)
    for number in range(len(names)):  # move up the names that were pushed below the axes
        places[-1 - number] = max(places[-1 - number], low + number * gap)
    line = {"arrowstyle": "-", "lw": 0.5, "color": "0.7", "relpos": (0, 0.5), "shrinkB": 4}
    for name, place in zip(names, places, strict=True):
        axes.annotate(
            name, ends[name], (1.06, place), textcoords=axes.get_yaxis_transform(),
            va="center", fontsize=8, color=_colour(name), annotation_clip=False,
            weight="bold" if name in OURS else "normal",
            arrowprops=line,
        )  # fmt: skip


def _colour(name: str) -> str:
    return "C3" if name in OURS else "C0"


def show(title: str, rows: list[list[str]]) -> Table:
    """Print a table of a header and rows."""
    table = make_table(title)
    for number, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if number else "left", no_wrap=number == 0)
    for row in rows[1:]:
        table.add_row(*row)
    return table
