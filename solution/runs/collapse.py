"""Find models whose validation score fell during a training that ended normally."""

from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_trained
from solution.system.wording import count

# a model has collapsed if its score (at most 1) falls by more than this; noise is far smaller
FALL = 0.1
SHORT = 5  # a curve with fewer points is not judged


def describe_collapsed(run: Run) -> list[str]:
    """Return a sentence for each model of the run whose early-stopping score fell by more than
    FALL. It names the model, its scores and the probable reason."""
    records = [read_trained(folder) for name in run.experiments() for folder in run.jobs(name)]
    return [words for record in records if (words := _describe_fall(record))]


def _describe_fall(record: JobRecord) -> str:
    """Return the sentence of describe_collapsed for a model; empty if its score did not fall."""
    for part in record.fits():
        curve = record.curve[part]
        step, best = max(curve, key=lambda point: point[1])
        last_step, last = curve[-1]
        if len(curve) >= SHORT and best - last > FALL:
            graphs = count(len(record.validated_on), "graph")
            verb = "is" if graphs.startswith("1 ") else "are"
            return (
                f"{record.experiment}, {' + '.join(record.collections)}, fold {record.fold}, seed "
                f"{record.seed}: best at step {step} of {last_step}, then its inner score fell "
                f"from {best:.2f} to {last:.2f}. The {graphs} that it stops early on {verb} "
                "probably unlike the graphs that it learns from: look at its learning curve in the "
                "report."
            )
    return ""
