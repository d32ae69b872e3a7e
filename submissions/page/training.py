"""The parts of the page on how the models were made: learning curves, cost, settings."""

from collections.abc import Sequence
from pathlib import Path

from solution.domain.collection import NAMES
from solution.runs.collapse import find_collapsed
from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_job
from solution.system.wording import count
from submissions.page.canvas import Figure
from submissions.page.charts import draw_curves
from submissions.page.text import Section, Table, listed, number

Curve = list[tuple[float, float]]
HIDDEN = ("experiments",)  # settings that are shown elsewhere, or are too long


def describe_curves(run: Run) -> Section:
    """Validation score by training step, a line for each model."""
    title, anchor = "Learning curves", "curves"
    figures: list[Figure] = []
    rows: list[list[str]] = []
    points: list[list[str]] = []
    for name in run.experiments():
        for collections, jobs in group_jobs(run, name).items():
            curves = {folder.name: _split(record.curve) for folder, record in jobs.items()}
            kept = [curve for parts in curves.values() for curve in parts]
            if kept:
                figures.append(_draw(collections, name, kept))
            points += [
                [name, collections, folder.replace("-", " "), _list_points(curve)]
                for folder, parts in curves.items()
                for curve in parts
            ]
            rows += [
                [name, collections, folder.replace("-", " "), *_summarise(curve)]
                for folder, parts in curves.items()
                for curve in parts
            ]
    if not figures:
        return Section(
            anchor,
            title,
            "No model of this run kept its validation scores: it was trained before models did so, "
            "or its rankers report none. Start it afresh with `fastslow run --replace`; a ranker "
            "of your own reports them with `report(step, steps, score=...)`.",
        )
    drawn = {row[0] for row in rows}
    silent = [name for name in run.experiments() if name not in drawn and run.jobs(name)]
    without = f" {listed(silent)}: trained for a fixed time, so without a curve." if silent else ""
    columns = ["Ranker", "Collection", "Model", "Steps", "First", "Best", "At step", "Last"]
    return Section(
        anchor,
        title,
        "The score on the graphs that a model stops early on. They are never those whose scores "
        f"are reported here, so a curve may lie above or below its ranker’s score.{without}",
        figures,
        [
            Table("Learning curves in short", columns, rows, texts=3, grouped=True),
            Table("Every point, as step: score", [*columns[:3], "Points"], points, 4, grouped=True),
        ],
        "A line is a model, its dot the best step, whose weights are kept.",
        notes=[f"Look at this: {collapse.describe()}" for collapse in find_collapsed(run)],
    )


def describe_making(run: Run) -> Section:
    """What the run cost, and everything needed to make it again."""
    costs = []
    for name in run.experiments():
        for collections, jobs in group_jobs(run, name).items():
            seconds = sum(record.seconds for record in jobs.values())
            memory = max(record.peak_megabytes for record in jobs.values())
            costs.append([name, collections, str(len(jobs)), f"{seconds:,.1f}", f"{memory:,.0f}"])
    record = run.record()
    settings = {k: v for k, v in record["settings"].items() if k not in HIDDEN}
    facts = {**settings, "commit": record.get("commit") or "not known"}
    facts |= record.get("versions", {})
    made = [[str(name), _show(value)] for name, value in facts.items()]
    rankers = [
        [name, str(value.get("ranker", "")), _show(value.get("seeds", ""))]
        for name, value in record["settings"].get("experiments", {}).items()
    ]
    cost_columns = ["Ranker", "Collection", "Models", "Seconds", "Peak MB"]
    return Section(
        "making",
        "How it was made",
        "On a CPU the same commit, data and settings give the same predictions, byte for byte. "
        "Memory is the peak of the whole process while a model was trained.",
        tables=[
            Table("Time and memory", cost_columns, costs, texts=2, grouped=True),
            Table("Settings, commit and versions", ["What", "Value"], made, texts=2),
            Table("Rankers", ["Experiment", "Settings", "Seeds"], rankers, texts=3),
        ],
    )


def group_jobs(run: Run, experiment: str) -> dict[str, dict[Path, JobRecord]]:
    """The jobs of an experiment by the collections that they rank, in the competition's order."""
    found: dict[str, dict[Path, JobRecord]] = {}
    for folder in run.jobs(experiment):
        record = read_job(folder)
        found.setdefault(", ".join(record.collections), {})[folder] = record
    return dict(sorted(found.items(), key=lambda item: NAMES.index(item[0].split(", ")[0])))


def _split(points: Sequence[tuple[int, float]]) -> list[Curve]:
    """A curve for each fit: one that starts again at a lower step is another model."""
    curves: list[Curve] = []
    for step, score in points:
        if not curves or step <= curves[-1][-1][0]:
            curves.append([])
        curves[-1].append((step, score))
    return curves


def _draw(collection: str, ranker: str, curves: list[Curve]) -> Figure:
    best = [max(score for _, score in curve) for curve in curves]
    steps = max(step for curve in curves for step, _ in curve)
    models = count(len(curves), "model")
    alternative = (
        f"{ranker} on {collection}: validation score by step of {models}, up to step {steps:,.0f}; "
        f"the best scores lie from {number(min(best))} to {number(max(best))}."
    )
    return draw_curves(collection, curves, f"{ranker}, {models}", alternative)


def _list_points(curve: Curve) -> str:
    return ", ".join(f"{step:g}: {number(score)}" for step, score in curve)


def _summarise(curve: Curve) -> list[str]:
    step, best = max(curve, key=lambda point: point[1])
    last = curve[-1]
    return [f"{last[0]:,.0f}", number(curve[0][1]), number(best), f"{step:,.0f}", number(last[1])]


def _show(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
