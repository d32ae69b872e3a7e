"""Find models whose validation score fell during a training that ended normally."""

from dataclasses import dataclass

from solution.runs.folder import Run
from solution.runs.job import JobRecord, read_trained
from solution.system.wording import count

# a model has collapsed if its score (at most 1) falls by more than this; noise is far smaller
FALL = 0.1
SHORT = 5  # a curve with fewer points is not judged


@dataclass(frozen=True)
class Collapse:
    """A model whose validation score was best early and then fell."""

    record: JobRecord
    step: int  # number of the step with the best score
    steps: int
    best: float
    last: float

    def describe(self) -> str:
        """Return a sentence that names the model, its scores and the probable reason."""
        graphs = count(len(self.record.validated_on), "graph")
        verb = "is" if graphs.startswith("1 ") else "are"
        return (
            f"{self.record.experiment}, {' + '.join(self.record.collections)}, fold "
            f"{self.record.fold}, seed {self.record.seed}: best at step {self.step} of "
            f"{self.steps}, then its inner score fell from {self.best:.2f} to {self.last:.2f}. The "
            f"{graphs} that it stops early on {verb} probably unlike the graphs that it learns "
            "from: look at its learning curve in the report."
        )


def find_collapsed(run: Run) -> list[Collapse]:
    """Return the models of the run whose early-stopping score fell by more than FALL."""
    records = [read_trained(folder) for name in run.experiments() for folder in run.jobs(name)]
    found = [_examine(record) for record in records]
    return [collapse for collapse in found if collapse is not None]


def _examine(record: JobRecord) -> Collapse | None:
    for part in record.fits():
        curve = record.curve[part]
        step, best = max(curve, key=lambda point: point[1])
        last_step, last = curve[-1]
        if len(curve) >= SHORT and best - last > FALL:
            return Collapse(record, step, last_step, best, last)
    return None
