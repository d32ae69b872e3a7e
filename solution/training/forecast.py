"""How long a run will take, before it starts: a model of every experiment is begun.

A fit is watched for some seconds, and the rest of its steps is taken to be as long as those that
were seen. Fits that stop early end sooner.
"""

import heapq
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.table import Table

from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.system.processes import one_thread
from solution.system.progress import bars
from solution.system.report import Report
from solution.system.terminal import make_table, say
from solution.system.wording import count, spell
from solution.training.executors.base import Task
from solution.training.executors.local import BYTES_OF_A_WORKER, LocalExecutor, count_slots
from solution.training.first_steps import count_predictions, foretell_fit, foretell_predictions
from solution.training.jobs import Job, list_jobs, list_missing
from solution.training.plan import Plan
from solution.training.sites import Here, JobAddress
from solution.training.watch import ProgressBars

PATIENCE = 20.0  # seconds in which a fit is watched; one step at least
WORKERS_SECONDS = 6.0  # until they have imported what they need
MERGING_SECONDS = 5.0  # of the ensemble, its scores and the submission, of the sample
MERGED_EACH_SECOND = 500_000  # predictions, of large runs
BYTES_OF_A_PREDICTION = 6  # in a run's folder: of its job, and gathered
BRIEF_PATIENCE = 5.0  # where nobody asked for a forecast
MUCH = 256 << 20  # bytes of a store that is worth a forecast that nobody asked for
MACHINES = (1, 2, 8, 100)  # workers, for which it is said: of cores like these


@dataclass(frozen=True)
class Forecast:
    """What the models of an experiment take that learn from one group of collections."""

    experiment: str
    models: int
    fit_seconds: float  # of one model
    predict_seconds: float
    predictions: int = 0  # of all of them

    @property
    def seconds(self) -> float:
        """Of one model."""
        return self.fit_seconds + self.predict_seconds


def forecast(
    experiments: Sequence[Experiment],
    plan: Plan,
    patience: float = PATIENCE,
    slots: int | None = None,
) -> list[Forecast]:
    """Begin to fit models of each group of collections, and predict a few graphs with one.

    As many at once as a run fits: they share caches and memory, and slow each other down.

    Args:
        patience: seconds in which the models of a group are watched.
        slots: how many are fitted at once; None: as many as this machine can.
    """
    executor = LocalExecutor(slots or count_slots())
    groups = [jobs for experiment in experiments for jobs in _group(experiment, plan)]
    trials = [_list_trials(jobs, patience, executor.slots) for jobs in groups]
    answers = iter(_try_all([trial for own in trials for trial in own], plan, executor))
    return [
        _join(jobs, [next(answers) for _ in own], plan)
        for jobs, own in zip(groups, trials, strict=True)
    ]


def _group(experiment: Experiment, plan: Plan) -> list[list[Job]]:
    """The jobs by what they learn from."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in list_jobs(experiment, plan):
        groups.setdefault(job.group, []).append(job)
    return list(groups.values())


# Seconds in which a fit of the job is watched; None: its predictions are timed.
Trial = tuple[Job, float | None]


def _list_trials(jobs: Sequence[Job], patience: float, slots: int) -> list[Trial]:
    """What is tried of a group: a few fits, and one model's predictions."""
    # Fits that stop early do so at another epoch each.
    tried = [jobs[place] for place in sorted({0, len(jobs) // 2, len(jobs) - 1})]
    seconds = min(patience, slots * patience / len(tried))
    return [*((job, seconds) for job in tried), (jobs[0], None)]


def _try_all(trials: Sequence[Trial], plan: Plan, executor: LocalExecutor) -> list[float]:
    """The seconds that each foretells."""
    # An experiment that was made in this process cannot be found in another.
    away = [number for number, (job, _) in enumerate(trials) if job.experiment.origin]
    tasks = [
        Task(trials[n][0].describe(), (JobAddress.of(trials[n][0]), trials[n][1])) for n in away
    ]
    answers: dict[int, float] = {}
    with bars() as progress:
        executor.run(
            Watcher(Here(plan.graphs, plan.store)), tasks,
            ProgressBars(progress, len(tasks), "Watching first steps"),
            lambda number, answer: answers.update({away[number]: answer}),
        )  # fmt: skip
    for number in range(len(trials)):
        if number not in answers:
            answers[number] = _answer(*trials[number], plan)
    return [answers[number] for number in range(len(trials))]


@dataclass(frozen=True)
class Watcher:
    """The work of a forecast, in any process of this machine."""

    site: Here

    def __call__(self, address: JobAddress, seconds: float | None, report: Report) -> float:
        """What a fit would take, watched for so many seconds; of predictions, for None."""
        return _answer(address.find(self.site), seconds, self.site.plan)


def _answer(job: Job, seconds: float | None, plan: Plan) -> float:
    with one_thread():
        return (
            foretell_predictions(job, plan) if seconds is None else foretell_fit(job, plan, seconds)
        )


def _join(jobs: Sequence[Job], answers: Sequence[float], plan: Plan) -> Forecast:
    *fits, predict_seconds = answers
    predicted = sum(count_predictions(job, plan) for job in jobs)
    mean = sum(fits) / len(fits)
    return Forecast(jobs[0].experiment.name, len(jobs), mean, predict_seconds, predicted)


def foretell_wall(found: Sequence[Forecast], workers: int, beside: float = 0.0) -> float:
    """Seconds of a run whose workers each take the next model until all are trained.

    Args:
        beside: seconds of what is done before and after the training.
    """
    begin = beside + (WORKERS_SECONDS if workers > 1 else 0.0)
    free = [begin] * workers
    for line in found:
        for _ in range(line.models):
            heapq.heapreplace(free, free[0] + line.seconds)
    return max(free)


def foretell_merging(found: Sequence[Forecast]) -> float:
    """Seconds of the ensemble, its scores and the submission."""
    return MERGING_SECONDS + sum(line.predictions for line in found) / MERGED_EACH_SECOND


def show_forecast(
    found: Sequence[Forecast], plan: Plan, workers: int | None, startup: float = 0.0
) -> Table:
    """The forecast as a table, with what the machine has.

    Args:
        startup: seconds that a run takes until it begins to train.
    """
    slots = workers or count_slots()
    free = shutil.disk_usage(plan.store.folder).free
    written = BYTES_OF_A_PREDICTION * sum(line.predictions for line in found)
    table = make_table(
        f"What the run will take on this machine, {count(slots, 'model')} at once",
        f"Of each group of collections up to three models were watched for {PATIENCE:.0f} "
        f"seconds, {slots} at once; those that stop early take far less, and what else the "
        "machine does adds to it. More workers are cores like these, here or of a cluster. "
        f"The store takes {plan.store.size / 2**20:,.0f} MB, predictions "
        f"{written / 2**20:,.0f} MB, {free / 2**30:,.0f} GB are free there; a worker takes "
        f"at most {BYTES_OF_A_WORKER / 2**30:.0f} GB of memory.",
    )
    for name in ("Stage", "Models", "One model", "All of them"):
        table.add_column(name, justify="left" if name == "Stage" else "right", no_wrap=True)
    table.add_row("preparing the data", "", "", "is done")
    for name in dict.fromkeys(line.experiment for line in found):
        own = [line for line in found if line.experiment == name]
        models = sum(line.models for line in own)
        mean = sum(line.models * line.seconds for line in own) / models
        table.add_row(name, str(models), spell(mean), spell(foretell_wall(own, slots)))
    merging = foretell_merging(found)
    table.add_row("merging and writing", "", "", spell(merging))
    for number in sorted({slots, *MACHINES}):
        words = f"together, {count(number, 'worker')}"
        wall = foretell_wall(found, number, startup + merging)
        table.add_row(words, "", "", spell(wall), style="bold" if number == slots else "")
    return table


def foretell_briefly(
    experiments: Sequence[Experiment],
    plan: Plan,
    run: Run,
    slots: int | None,
    found: Sequence[Forecast] | None = None,
) -> str:
    """The first line of a run: how many models are left, and of much data how long it will take.

    Args:
        slots: how many are trained at once; None: nobody knows, elsewhere.
        found: what is known already of these experiments.
    """
    jobs = [job for experiment in experiments for job in list_jobs(experiment, plan)]
    # As the run itself asks: one whose record is gone, or another's, is trained again.
    left = Counter(job.experiment.name for job in list_missing(experiments, plan, run))
    if not left:
        return f"All {count(len(jobs), 'model')} are trained."
    words = f"{count(left.total(), 'model')} to train" + (f", {slots} at once" if slots else "")
    if plan.store.size < MUCH or slots is None:
        return f"{words}; how long it takes is said as they are trained."
    if found is None:
        say(f"{words}. Watching the first steps of each kind, to say how long it will take ...")
        untrained = [experiment for experiment in experiments if left[experiment.name]]
        found = forecast(untrained, plan, BRIEF_PATIENCE, slots)
    merging, all_of = foretell_merging(found), Counter(job.experiment.name for job in jobs)
    found = [
        replace(line, models=round(line.models * left[line.experiment] / all_of[line.experiment]))
        for line in found
    ]
    seconds = foretell_wall(found, slots, merging)
    return f"About {spell(seconds)} until everything is written, less where nets stop early."
