"""Train small rankers on the scores of an ensemble instead of runtimes: `fastslow pack --distill`.

A small ranker is called a student, the ensemble its teacher. The student that holds out a fold
learns from the models that held out the same fold, on graphs of the other folds and on test graphs.
So nothing about the fold leaks through the teacher, and the student's out-of-fold score is
unbiased. The student that is packed learns from all models on all graphs.

A teacher can score any configuration. So each layout graph also gets generated configurations,
which were never measured. With them a student's scores are more like its teacher's.

Source: Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015; of rankings:
Tang and Wang, "Ranking distillation", KDD 2018.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from ensembles.merge import find_members, merge_collection
from ensembles.recipe import TEACHER, Recipe, recall, remember
from solution.domain.codebook import encode
from solution.domain.collection import LAYOUT, NLP, TILE, XLA
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.domain.predictions import make_frame
from solution.experiments.base import Experiment
from solution.features.candidates import make_candidates
from solution.features.preparation import Preparation
from solution.models.base import check_no_options
from solution.models.catalogue import OWN, RECORD, Model, load_model
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.runs.folder import STUDENTS as STUDENT_NAMES
from solution.runs.folder import Run
from solution.runs.job import MODEL, JobRecord, read_job
from solution.system.errors import InputError
from solution.system.files import remove
from solution.system.processes import one_thread
from solution.system.sealing import read_record
from solution.system.terminal import say
from solution.training.folds import NO_FOLD
from solution.training.jobs import Job, list_jobs
from solution.training.plan import Plan

# maximum number of configurations of a layout graph that a student learns from: generated (MADE),
# and from the graph's file (OWN)
MADE_LAYOUTS = 240
OWN_LAYOUTS = 1000
LAYOUT_STUDENT, TILE_STUDENT = STUDENT_NAMES
# Each student has the size of a single net of the ensemble that it learns from.
STUDENTS = (
    Experiment(
        name=LAYOUT_STUDENT,
        collections=LAYOUT,
        train_jointly=(XLA, NLP),
        ranker=LayoutGnnSettings(),
    ),
    Experiment(
        name=TILE_STUDENT,
        collections=TILE,
        ranker=TileGnnSettings(
            dropout=0.3,
            training=TrainingSettings(graphs_per_step=16, min_steps=10, weight_decay=1e-2),
        ),
    ),
)
RECIPE = Recipe(
    name="distilled",
    method="z_score",
    members={student.name: 1.0 for student in STUDENTS},
    allow_missing=frozenset({"members"}),
)


def list_refits(experiment: Experiment, plan: Plan) -> list[Job]:
    """List the jobs that train a model on all graphs: one per group of collections and seed."""
    found: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for job in list_jobs(experiment, plan):
        ranked = found.setdefault((job.group, job.seed), [])
        ranked += [name for name in job.collections if name not in ranked]
    return [
        Job(experiment, group, tuple(collections), NO_FOLD, seed)
        for (group, seed), collections in found.items()
    ]


def _list_teachers(run: Run, recipe: Recipe) -> list[tuple[str, Path, JobRecord]]:
    """Return (experiment, folder, record) of each trained job that the recipe gives a weight."""
    names = [name for name in find_members(run, recipe, "test") if name in recipe.names()]
    return [(name, folder, read_job(folder)) for name in names for folder in run.jobs(name)]


def find_taught(run: Run, recipe: Recipe) -> set[str]:
    """Return the collections that students can learn: the recipe weighs a trained model for them.
    Raises InputError if there are none, or a model is from a user's file."""
    teachers = _list_teachers(run, recipe)
    for name, folder, _ in teachers:
        if str(read_record(folder / MODEL / RECORD, "a model").get("kind")).startswith(OWN):
            raise InputError(
                f"{run.folder}: {name} is a model from a file of yours, not of this program, "
                f"so it teaches no students. Leave it out of the recipe {recipe.name}."
            )
    taught = {
        collection
        for name, _, job in teachers
        for collection in job.collections
        if name in recipe.weights(collection)
    }
    if not taught:
        raise InputError(
            f"{run.folder}: {recipe.name} weighs no model of it, so nobody can teach students. "
            "Choose another recipe with --recipe."
        )
    return taught


def keep_teacher(run: Run, recipe: Recipe, students: Sequence[Experiment]) -> None:
    """Record that the run's students learn from this recipe; delete other recipes' students."""
    known = recall(run.folder, TEACHER)
    if known is not None and known == recipe.model_copy(update={"name": known.name}):
        return
    for folder in (run.folder / student.name for student in students):
        if folder.exists():
            say(f"{folder}: learned from another ensemble than {recipe.name}, and is made anew.")
            remove(folder)
    remember(run, recipe, TEACHER)


class Teacher:
    """The ensemble's models that held out a student's `fold`, which score graphs for the student.
    For NO_FOLD, these are the models of all folds and, for collections without folds, the models
    that learned from all graphs."""

    def __init__(self, run: Run, recipe: Recipe, fold: int) -> None:
        self._run, self._recipe, self._fold = run, recipe, fold
        self._models: dict[Path, Model] = {}

    def teach(self, graphs: Sequence[Graph]) -> Iterator[Graph]:
        """Yield the graphs with pseudo-runtimes from the ensemble's scores: exp((score - mean) /
        standard deviation). Layout graphs also get generated configurations. Graphs that no model
        of the ensemble ranks are left out."""
        with one_thread():
            for given in graphs:
                graph = _add_layouts(given) if given.collection.kind == "layout" else given
                scores = self._score(graph)
                if scores is not None:
                    spread = float(scores.std()) or 1.0
                    runtimes = np.exp((scores - scores.mean()) / spread)
                    yield dataclasses.replace(graph, runtimes=runtimes)

    @cached_property
    def _members(self) -> list[tuple[str, Path, tuple[str, ...], int, int]]:
        """Return (experiment, model folder, collections, fold, seed) of each model that teaches."""
        teachers = _list_teachers(self._run, self._recipe)
        divided = {(n, c) for n, _, job in teachers if job.fold != NO_FOLD for c in job.collections}

        def teaches(name: str, job: JobRecord) -> bool:
            if self._fold != NO_FOLD:
                return job.fold == self._fold
            return (job.fold != NO_FOLD) == any((name, c) in divided for c in job.collections)

        return [
            (name, folder / MODEL, job.collections, job.fold, job.seed)
            for name, folder, job in teachers
            if teaches(name, job)
        ]

    def _score(self, graph: Graph) -> np.ndarray | None:
        frames: dict[str, list[pl.DataFrame]] = {}
        prepared: dict[Preparation, Graph] = {}
        name = graph.collection.name
        for experiment, folder, collections, fold, seed in self._members:
            if name in collections and experiment in self._recipe.weights(name):
                if folder not in self._models:
                    self._models[folder] = load_model(folder)
                model = self._models[folder]
                # models with the same preparation share the prepared graph
                if model.preparation not in prepared:
                    prepared[model.preparation] = model.preparation(graph)
                scores = model.ranker.predict(prepared[model.preparation])
                frame = make_frame(graph.key, np.arange(len(scores)), scores, fold, seed)
                frames.setdefault(experiment, []).append(frame)
        if not frames:
            return None
        joined = {experiment: pl.concat(parts) for experiment, parts in frames.items()}
        merged = merge_collection(name, joined, self._recipe)
        return merged["score"].cast(pl.Float64).to_numpy()


def _add_layouts(graph: Graph) -> Graph:
    """Return the graph with at most OWN_LAYOUTS of its own and MADE_LAYOUTS generated
    configurations."""
    check_no_options(graph)
    chosen = graph.select(choose_configs(graph.key, graph.num_configs, OWN_LAYOUTS))
    try:
        made = make_candidates(graph, MADE_LAYOUTS)
    except InputError:  # the graph has no configurable node, so no configuration can be generated
        return chosen
    configs = encode(np.concatenate([chosen.layouts.expand(), made.layouts.expand()]))
    return dataclasses.replace(chosen, configs=configs, runtimes=None, listed=None)
