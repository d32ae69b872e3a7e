"""Build the page's sections on training: cost, settings, versions, and learning curves."""

from collections.abc import Sequence
from pathlib import Path

from solution.domain.collection import NAMES
from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_trained
from solution.system.wording import count
from submissions.page.charts import Figure, draw_curves
from submissions.page.evidence import PageTable, Section, listed, number

HIDDEN = ("experiments",)  # settings that are too long for the table
SCORE = "score"  # name of the curve of validation scores, by which training stops early
Curve = list[tuple[float, float]]  # (step, value) pairs
COLUMNS = ("Ranker", "Collection", "Model")
NUMBERS = ("Steps", "First", "Best", "At step", "Last", "Volatility")


def describe_making(run: Run) -> Section:
    """Return the section on the run's cost, and everything needed to reproduce it."""
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
            PageTable("Time and memory", cost_columns, costs, texts=2, grouped=True),
            PageTable("Settings, commit and versions", ["What", "Value"], made, texts=2),
            PageTable("Rankers", ["Experiment", "Settings", "Seeds"], rankers, texts=3),
        ],
    )


def group_jobs(run: Run, experiment: str) -> dict[str, dict[Path, JobRecord]]:
    """Return an experiment's jobs, grouped by the names of the collections that they rank, in the
    competition's order. A group has the record of each job by its folder."""
    found: dict[str, dict[Path, JobRecord]] = {}
    for folder in run.jobs(experiment):
        record = read_trained(folder)
        found.setdefault(", ".join(record.collections), {})[folder] = record
    return dict(sorted(found.items(), key=lambda item: NAMES.index(item[0].split(", ")[0])))


def _show(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def describe_curves(run: Run) -> Section:
    """Return the section on validation scores and losses by training step, a line per model."""
    figures: list[Figure] = []
    rows: list[list[str]] = []
    points: list[list[str]] = []
    for name in run.experiments():
        for collections, jobs in group_jobs(run, name).items():
            fits = {folder: split_fits(record) for folder, record in jobs.items()}
            figures += _draw(collections, name, [fit for parts in fits.values() for fit in parts])
            for folder, parts in fits.items():
                first = [name, collections, folder.name.replace("-", " ")]
                volatility = jobs[folder].volatility
                rows += [[*first, *_summarise(fit[SCORE], volatility)] for fit in parts]
                for fit in parts:
                    shown = [f"{step:g}: {number(score)}" for step, score in fit[SCORE]]
                    points.append([*first, ", ".join(shown)])
    if not figures:
        return Section("curves", "Learning curves", NONE_KEPT)
    drawn = {row[0] for row in rows}
    silent = [name for name in run.experiments() if name not in drawn and run.jobs(name)]
    without = f" {listed(silent)} trained for a fixed time and has no curve." if silent else ""
    tables = [
        PageTable("Learning curves in short", [*COLUMNS, *NUMBERS], rows, texts=3, grouped=True),
        PageTable("Every point, as step: score", [*COLUMNS, "Points"], points, 4, grouped=True),
    ]
    return Section(
        "curves",
        "Learning curves",
        "The score on the graphs that a model stops early on. Their scores are not reported on "
        f"this page, so a curve may be above or below its ranker’s score.{without}",
        figures,
        tables,
        "A line is a model, its dot the best step, whose weights are kept. The training loss is "
        "dashed. Volatility is the standard deviation of a curve’s last ten scores.",
    )


NONE_KEPT = (
    "No model of this run recorded validation scores: an old version trained it, or its rankers "
    "report none. Start it afresh with `fastslow run --replace`; a user's ranker reports them with "
    "`report(step, steps, score=...)`."
)


def split_fits(record: JobRecord) -> list[dict[str, Curve]]:
    """Return, for each model that a job fitted, its learning curves by name: validation scores
    (SCORE), and losses and accuracies if recorded."""
    steps, scores = [step for step, _ in record.curve], [score for _, score in record.curve]
    kept = {name: values for name, values in record.measures.items() if len(values) == len(steps)}
    return [
        {
            name: list(zip(steps[part], values[part], strict=True))
            for name, values in {**kept, SCORE: scores}.items()
        }
        for part in record.fits()
    ]


def _draw(collections: str, ranker: str, fits: Sequence[dict[str, Curve]]) -> list[Figure]:
    """Draw validation scores, and losses and ordered pair accuracies if recorded."""
    if not fits:
        return []
    figures = [_draw_scores(collections, ranker, [fit[SCORE] for fit in fits])]
    kept = {
        name: [fit[name] for fit in fits if name in fit]
        for name in ("loss", "validation_loss", "opa")
    }
    models = count(len(kept["opa"]), "model")
    if kept["loss"] and kept["validation_loss"]:
        title = f"{ranker}, loss of {models}"
        ends = _ends("training loss", kept["loss"])
        words = f"{ranker} on {collections}: {ends}; "
        words += f"{_ends('validation loss', kept['validation_loss'])}."
        losses = kept["validation_loss"]
        figures.append(
            draw_curves(collections, losses, title, words, axis="loss", dashed=kept["loss"])
        )
    if kept["opa"]:
        words = f"{ranker} on {collections}: {_ends('ordered pair accuracy', kept['opa'])}."
        title = f"{ranker}, ordered pairs of {models}"
        figures.append(draw_curves(collections, kept["opa"], title, words, axis="OPA"))
    return figures


def _draw_scores(collections: str, ranker: str, curves: Sequence[Curve]) -> Figure:
    best = [max(score for _, score in curve) for curve in curves]
    steps = max(step for curve in curves for step, _ in curve)
    models = count(len(curves), "model")
    alternative = (
        f"{ranker} on {collections}: validation score by step of {models}, up to step "
        f"{steps:,.0f}; the best scores lie from {number(min(best))} to {number(max(best))}."
    )
    return draw_curves(collections, curves, f"{ranker}, {models}", alternative, best=True)


def _ends(name: str, curves: Sequence[Curve]) -> str:
    """Return "mean NAME from FIRST to LAST", the means of the curves' first and last values."""
    first, last = (sum(curve[end][1] for curve in curves) / len(curves) for end in (0, -1))
    return f"mean {name} from {number(first)} to {number(last)}"


def _summarise(curve: Curve, volatility: float | None) -> list[str]:
    step, best = max(curve, key=lambda point: point[1])
    last = curve[-1]
    shown = [f"{last[0]:,.0f}", number(curve[0][1]), number(best), f"{step:,.0f}", number(last[1])]
    return [*shown, "" if volatility is None else number(volatility)]
