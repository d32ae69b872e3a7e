"""Pack the models that a recipe needs from a run, with their training programs and scores."""

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ensembles.merge import check_finished, describe_fit, find_members, merge_files, score_recipes
from ensembles.recipe import Recipe, check_recipe
from ensembles.statistics import compare, mean_scores
from solution.domain import predictions
from solution.domain.families import name_family
from solution.features.preparation import VERSION
from solution.models import catalogue
from solution.models.catalogue import read_settings
from solution.runs.folder import EXPERIMENTS, Run, recall_command
from solution.runs.job import MODEL, NO_FOLD, JobRecord, check_job
from solution.serving.archive import ZIP, is_archive, write_archive
from solution.serving.calibration import find_steps
from solution.serving.card import write_card
from solution.serving.record import (
    CARD,
    MODELS,
    RECORD,
    BundleRecord,
    Member,
    Program,
    Score,
    Teacher,
    hash_name,
    write_bundle_record,
)
from solution.system.errors import InputError
from solution.system.files import check_writable, replace_folder
from solution.system.refusals import name_full_disk
from solution.system.sealing import check_files, list_checksums, read_record

TEACHER, STUDENT = "teacher", "student"
# {(collection, graph): (result of find_steps, number of configurations)}
Steps = dict[tuple[str, str], tuple[tuple[tuple[int, float], ...], int]]
# {(collection, graph): two arrays (configs,)}: the configurations' positions sorted by predicted
# score, fastest first, and the configurations' runtimes in the graph's order
Ranked = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]


def pack(
    run: Run, recipe: Recipe, out: Path, *, refitted: bool = False, teacher: Recipe | None = None
) -> Path:
    """Write the bundle of a run: a zip if `out` ends in .zip, otherwise a folder. `refitted`: take
    models trained on all folds; the card still shows the scores of the models that left out a fold.
    `teacher`: the ensemble from which the members were distilled.

    Raises InputError if `out` exists and is no bundle, the recipe does not fit the run, the run is
    not finished, or a model is missing, damaged or of a user's class.
    """
    check_recipe(recipe, run.experiments())
    check_finished(run, recipe)
    check_bundle_place(out)
    jobs = _find_jobs(run, recipe, refitted=refitted)
    about = _About(run, recipe, refitted, teacher)
    if out.suffix != ZIP:
        with name_full_disk(out), replace_folder(out) as folder:
            _write(about, jobs, out.name, folder)
        return out
    with tempfile.TemporaryDirectory(prefix="fastslow-") as scratch:
        with name_full_disk(Path(scratch)):
            _write(about, jobs, out.stem, Path(scratch))
        return write_archive(Path(scratch), out)


def check_bundle_place(out: Path) -> None:
    """Raise InputError if `out` would overwrite anything but a bundle, or cannot be written."""
    if not out.name:
        raise InputError(f"{out}: expected the name of a new folder or of a bundle.")
    if out.is_dir():  # `pack` deletes it with all its files, so it must be a bundle or empty
        names = {path.name for path in out.iterdir()}
        is_bundle = (out / RECORD).is_file() and names <= {RECORD, CARD, MODELS}
        fits = out.suffix != ZIP and (is_bundle or not names)
    else:
        fits = not out.exists() or (out.suffix == ZIP and is_archive(out))
    if not fits:
        raise InputError(f"{out}: expected a new name or a bundle, found other files there.")
    check_writable(out.parent)


@dataclass(frozen=True)
class _About:
    """The arguments of `pack` that decide what goes into the bundle."""

    run: Run
    recipe: Recipe
    refitted: bool
    teacher: Recipe | None


def _write(about: _About, jobs: Sequence[tuple[Path, JobRecord]], name: str, folder: Path) -> None:
    members = [_copy_model(job, source, folder) for source, job in jobs]
    record = _describe(about, name, members, [job for _, job in jobs])
    write_card(record, folder)
    files = list_checksums(folder)
    sizes = {name: (folder / name).stat().st_size for name in files}
    write_bundle_record(dataclasses.replace(record, files=files, sizes=sizes), folder)


def _find_jobs(run: Run, recipe: Recipe, *, refitted: bool) -> list[tuple[Path, JobRecord]]:
    """Return (folder, record) of the trained models of the recipe's members and fallback: the
    models for each fold and seed or, if `refitted`, those trained on all folds. Collections that
    are not divided into folds have only models trained on all graphs."""
    found = []
    for name in dict.fromkeys(find_members(run, recipe, "test")):
        jobs = [(source, check_job(source)) for source in run.jobs(name)]
        divided = {c for _, job in jobs if job.fold != NO_FOLD for c in job.collections}
        chosen = [
            (source, job)
            for source, job in jobs
            if (job.fold == NO_FOLD) == (refitted or not divided & set(job.collections))
        ]
        if not refitted:
            _check_complete(run, name, [job for _, job in chosen])
        found += chosen
    if not found:
        raise InputError(f"{run.folder}: has no model of recipe {recipe.name}. Finish the run.")
    return found


def _check_complete(run: Run, name: str, jobs: Sequence[JobRecord]) -> None:
    """Raise InputError unless every ranked collection has a model for each fold and seed."""
    if not jobs:
        raise InputError(
            f"{run.folder}: {name} lacks all its models. Train them again with "
            f"`{recall_command(run)}`."
        )
    graphs = predictions.read(run.graphs, ["collection", "fold", "labelled"])
    seeds = run.record()["settings"][EXPERIMENTS][name].get("seeds", [0])
    for collection in sorted({name for job in jobs for name in job.collections}):
        folds = (
            graphs.filter("labelled", pl.col("collection") == collection)["fold"].unique().to_list()
        )
        is_divided = len(folds) > 1
        folds = folds if is_divided else [job.fold for job in jobs[:1]]
        trained = {(job.fold, job.seed) for job in jobs if collection in job.collections}
        missing = {(fold, seed) for fold in folds for seed in seeds} - trained
        if is_divided and missing:
            fold, seed = min(missing)
            raise InputError(
                f"{run.folder}: {name} lacks {len(missing)} models of {collection}, such as fold "
                f"{fold} seed {seed}. Finish the run with `{recall_command(run)}`."
            )


def _copy_model(job: JobRecord, source: Path, folder: Path) -> Member:
    """Copy a model into the bundle, after checking that this program can load it from there."""
    name = f"{MODELS}/{job.experiment}/{source.parent.name}/{source.name}"
    target = folder / name
    target.mkdir(parents=True)
    described = read_record(source / MODEL / catalogue.RECORD, "a model")
    if str(described.get("kind")).startswith(catalogue.OWN):
        raise InputError(
            f"{job.experiment} is your model, whose code is not in this program, so it is "
            "not packed. Give a recipe without it: --recipe NAME."
        )
    try:  # an unreadable model is rejected here, not by those who receive the bundle
        read_settings(described)
    except InputError as error:
        raise InputError(f"{source}: cannot be packed: {error}") from error
    check_files(source / MODEL, described.get("files"), source / MODEL / catalogue.RECORD)
    for file in [*described["files"], catalogue.RECORD]:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / MODEL / file, target / file)
    return Member(name, job.experiment, job.collections, job.fold, job.seed)


def _describe(
    about: _About, name: str, members: Sequence[Member], jobs: Sequence[JobRecord]
) -> BundleRecord:
    run, recipe = about.run, about.recipe
    made: Mapping[str, Any] = run.record()
    used = {member.experiment for member in members}
    learned = {key for job in jobs for key in [*job.fitted_on, *job.validated_on]}
    table = score_recipes(run, {recipe.name: recipe})
    ranked = read_ranked(run, recipe, used)
    return BundleRecord(
        name=name,
        recipe=recipe,
        features=VERSION,
        code=str(made.get("code")),
        commit=made.get("commit"),
        versions=dict(made.get("versions", {})),
        members=tuple(members),
        programs=list_programs(run, learned, list_steps(ranked)),
        scores=_score(table),
        families=_score_families(table),
        refitted=about.refitted,
        teacher=None if about.teacher is None else _describe_teacher(run, recipe, about.teacher),
        files={},
        sizes={},
        caveat=" ".join(
            filter(None, (describe_fit(run, one) for one in (recipe, about.teacher) if one))
        ),
        label_sources=tuple(run.label_sources()),
        scheme=made["settings"]["scheme"],
    )


def list_programs(run: Run, learned: set[str], steps: Steps) -> dict[str, tuple[Program, ...]]:
    """Return {collection: Programs}, one for each graph that the models learned from or predicted
    out of fold. `learned`: IDs COLLECTION:GRAPH. `steps`: the result of `list_steps`."""
    found: dict[str, list[Program]] = {}
    for row in predictions.read(run.graphs).iter_rows(named=True):
        key = row["collection"], row["graph"]
        if ":".join(key) in learned or key in steps:
            improvements, ranked = steps.get(key, ((), 0))
            program = Program(
                name=hash_name(*key),
                architecture=row["architecture"],
                group=hash_name(str(row["group"])),
                family=name_family(row["graph"]),
                nodes=row["nodes"],
                edges=row["edges"],
                configurable=row["configurable"],
                configs=row["configs"],
                steps=improvements,
                ranked=ranked,
            )
            found.setdefault(key[0], []).append(program)
    return {name: tuple(programs) for name, programs in sorted(found.items())}


def read_ranked(run: Run, recipe: Recipe, used: set[str]) -> Ranked:
    """Return each graph's order and runtimes (see Ranked). The order is by the out-of-fold scores
    of the `used` experiments, merged by the recipe."""
    labels = predictions.read(run.labels)
    paths = {n: p for n, p in find_members(run, recipe, "out_of_fold").items() if n in used}
    found: Ranked = {}
    for frame in merge_files({n: p for n, p in paths.items() if p.is_file()}, recipe):
        joined = frame.join(labels, on=predictions.REQUEST_KEYS, maintain_order="left")
        for (name, graph), rows in joined.group_by("collection", "graph", maintain_order=True):
            order = np.argsort(rows["score"].to_numpy(), kind="stable")
            found[str(name), str(graph)] = order, rows["runtime"].to_numpy()
    return found


def list_steps(ranked: Ranked) -> Steps:
    """Return each graph's (k, slowdown) steps (see find_steps) and number of configurations."""
    return {
        key: (find_steps(order, runtimes), len(order)) for key, (order, runtimes) in ranked.items()
    }


def _describe_teacher(run: Run, recipe: Recipe, teacher: Recipe) -> Teacher:
    """Return the teacher's scores, and the students' mean difference on the same graphs."""
    table = score_recipes(run, {TEACHER: teacher, STUDENT: recipe})
    gains = compare(table, STUDENT, TEACHER).filter(pl.col("collection") == "mean")
    (mean,) = gains.iter_rows(named=True)
    return Teacher(
        name=teacher.name,
        scores=_score(table.filter(pl.col("member") == TEACHER)),
        gain=Score(mean["difference"], mean["low"], mean["high"], mean["graphs"]),
    )


def _score(table: pl.DataFrame) -> dict[str, Score]:
    return {
        row["collection"]: Score(row["value"], row["low"], row["high"], row["graphs"])
        for row in mean_scores(table).iter_rows(named=True)
    }


def _score_families(table: pl.DataFrame) -> dict[str, dict[str, Score]]:
    """Return {collection: {family: score}}, see name_family."""
    named = table.with_columns(
        family=pl.col("graph").map_elements(name_family, return_dtype=pl.String)
    )
    found: dict[str, dict[str, Score]] = {}
    for (family,), rows in named.sort("family").group_by("family", maintain_order=True):
        for name, score in _score(rows.drop("family")).items():
            found.setdefault(name, {})[str(family)] = score
    return found
