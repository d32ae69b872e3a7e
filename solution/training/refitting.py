"""Train the models that are packed: a run's rankers on all folds, or students of its ensemble.

Both are stored as jobs of the run, beside the jobs that hold out a fold. If the training is
stopped, the same command continues it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ensembles.recipe import Recipe
from solution.domain import predictions
from solution.experiments.base import Experiment, find_named_experiment, list_experiments
from solution.runs.folder import Run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.progress import bars
from solution.system.report import Report
from solution.training import distilling
from solution.training.executors.base import Executor, Task
from solution.training.executors.local import HERE
from solution.training.fit import train_job
from solution.training.forecast import is_recorded, recall_budget
from solution.training.jobs import Backlog, Job, list_jobs
from solution.training.opening import open_experiments
from solution.training.out_of_fold import gather, train_jobs
from solution.training.plan import Plan
from solution.training.sites import Here
from solution.training.watch import ProgressBars, watch_jobs


def refit(run: Run, recipe: Recipe, store: Store, executor: Executor = HERE) -> None:
    """Train each ranker of the recipe again with each seed, on all folds (early stopping holds out
    15% of the labelled graphs). Raises InputError if store or code are not the run's, or if a
    ranker is from a user's file."""
    names = [name for name in run.experiments() if name in {*recipe.names(), recipe.fallback}]
    ours = list_experiments()
    foreign = [name for name in names if name not in ours]
    if foreign:
        raise InputError(
            f"{run.folder}: {', '.join(foreign)} is from a file of yours; only models of the "
            f"package are packed. Leave it out of the recipe {recipe.name}."
        )
    experiments = recall_experiments(run, names)
    with _open_again(run, experiments, store) as plan:
        jobs = [
            job for experiment in experiments for job in distilling.list_refits(experiment, plan)
        ]
        train_refits(jobs, plan, run, executor)


def train_refits(jobs: Sequence[Job], plan: Plan, run: Run, executor: Executor = HERE) -> None:
    """Train the missing models that learn from all graphs."""
    with bars() as progress:
        watch = ProgressBars(progress, len(jobs), "Training on all graphs")
        train_jobs(Backlog.of(jobs, run), plan, run, watch, executor)


def distill(
    run: Run,
    recipe: Recipe,
    store: Store,
    students: Sequence[Experiment] = distilling.STUDENTS,
    executor: Executor = HERE,
) -> None:
    """Train the ensemble's students, small rankers that learn from its scores: one per fold, to get
    an out-of-fold score, and one on all graphs, which is packed. Raises InputError if store or code
    are not the run's."""
    with _open_again(run, students, store) as plan:
        taught = distilling.find_taught(run, recipe)
        distilling.keep_teacher(run, recipe, students)
        jobs = [
            job
            for student in students
            for job in (*list_jobs(student, plan), *distilling.list_refits(student, plan))
            if taught & set(job.group)
        ]
        backlog = Backlog.of(jobs, run)
        with watch_jobs(backlog.total, backlog.count_kinds(), run.log) as watch:
            for _ in range(backlog.total - len(backlog.missing)):
                watch.advance()
            tasks = [Task(job.describe(), (job,)) for job in backlog.missing]
            executor.run(Tutor(Here(plan.graphs, plan.store), run, recipe), tasks, watch)
        of_folds = [job for student in students for job in list_jobs(student, plan)]
        gather(of_folds, [job for job in of_folds if job not in jobs], plan, run)


@dataclass(frozen=True)
class Tutor:
    """The function that workers of this machine call to train a student."""

    site: Here
    run: Run
    recipe: Recipe

    def __call__(self, job: Job, report: Report) -> None:
        """Train a student on the scores of the ensemble's models that have not seen its fold."""
        teacher = distilling.Teacher(self.run, self.recipe, job.fold)
        train_job(job, self.site.plan, self.run, report, teacher.teach)


def recall_experiments(run: Run, names: Sequence[str]) -> list[Experiment]:
    """Return the experiments `names` as the run trained them: full, cut to a budget, or as a quick
    look. If the run's record matches none of these, return the full experiments; the run rejects
    them when it is opened."""
    settings = run.record()["settings"]
    full = [find_named_experiment(name) for name in names]
    if full and (budget := recall_budget(run.folder, full, settings["folds"])):
        return budget.apply(full)
    quick = [experiment.quick() for experiment in full]
    return quick if is_recorded(quick, settings) else full


@contextmanager
def _open_again(run: Run, experiments: Sequence[Experiment], store: Store) -> Iterator[Plan]:
    """Yield the plan of an existing run, with its folds; the run is locked during the block."""
    settings = run.record()["settings"]
    ours = list_experiments()
    known = recall_experiments(run, [name for name in run.experiments() if name in ours])
    is_quick = any(experiment.is_quick for experiment in known)
    ranked = predictions.read(run.graphs)["collection"].unique().to_list()
    with open_experiments(
        experiments, store, run.folder, scheme=settings["scheme"], folds=settings["folds"],
        limit=is_quick, collections=ranked,
    ) as (plan, _):  # fmt: skip
        yield plan
