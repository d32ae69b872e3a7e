"""The page's part on how the models were trained: cost, settings, versions."""

from pathlib import Path

from solution.domain.collection import NAMES
from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_trained
from submissions.page.text import Section, Table

HIDDEN = ("experiments",)  # settings that are shown elsewhere or are too long


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
            Table("Time and memory", cost_columns, costs, texts=2, grouped=True),
            Table("Settings, commit and versions", ["What", "Value"], made, texts=2),
            Table("Rankers", ["Experiment", "Settings", "Seeds"], rankers, texts=3),
        ],
    )


def group_jobs(run: Run, experiment: str) -> dict[str, dict[Path, JobRecord]]:
    """Group an experiment's jobs by the collections that they rank, in the competition's order."""
    found: dict[str, dict[Path, JobRecord]] = {}
    for folder in run.jobs(experiment):
        record = read_trained(folder)
        found.setdefault(", ".join(record.collections), {})[folder] = record
    return dict(sorted(found.items(), key=lambda item: NAMES.index(item[0].split(", ")[0])))


def _show(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
