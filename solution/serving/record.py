"""The record of a bundle: which files it has, and what its models learned.

    BUNDLE/
        bundle.json     this record, with its checksum, and every other file's checksum and size
        README.md       the model card
        models/EXPERIMENT/COLLECTIONS/fold-F-seed-S/      one model (solution.models.catalogue)

A checksum finds damage; it does not prove who packed a bundle. So nothing in a bundle is ever run
or imported by name: a model's kind is looked up in the catalogue's table.
"""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ensembles.recipe import Recipe
from solution.domain.collection import NAMES
from solution.domain.graph import TIMED, is_source
from solution.features.preparation import VERSION
from solution.models import catalogue
from solution.models.light import KINDS as STUDENTS
from solution.models.settings import MAX_DEPTH, MAX_WIDTH, SIZES
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.names import check_inside, check_name
from solution.system.sealing import read_record

RECORD, CARD, MODELS, FORMAT = "bundle.json", "README.md", "models", 1
# maximum number of bytes of all files together
MAX_BYTES = 4 << 30
# maximum number of models, and maximum number of programs in a collection
MAX_MEMBERS, MAX_PROGRAMS = 10_000, 100_000
Name = Annotated[str, AfterValidator(check_name)]  # becomes the name of a folder or a file
FileName = Annotated[str, AfterValidator(check_inside)]  # path relative to the bundle's folder
Count = Annotated[int, Field(ge=0, le=1 << 60)]
Fold = Annotated[int, Field(ge=-1, le=1 << 60)]
Slowdown = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Member:
    """One trained model of the bundle."""

    folder: FileName  # path of the model's folder, relative to the bundle's folder
    experiment: Name
    collections: tuple[str, ...]  # the collections that the model ranks
    fold: Fold  # the fold that was held out; -1: none
    seed: Fold


@dataclass(frozen=True)
class Program:
    """A graph that the models learned from or predicted out of fold; its name is hashed."""

    name: str
    architecture: str  # Graph.architecture: a hash of opcodes and edges
    group: str  # hash of the name of the program's group: graphs that are always in the same fold
    family: str  # the word of the program's name that names its family (name_family), or ""
    nodes: Count
    edges: Count
    configurable: Count
    configs: Count
    # (k, slowdown) steps, see calibration.find_steps; empty: not predicted out of fold
    steps: tuple[tuple[Count, Slowdown], ...]
    ranked: Count  # number of configurations predicted out of fold


@dataclass(frozen=True)
class Score:
    """A mean out-of-fold score, with a 95% interval if there are enough groups."""

    value: float
    low: float | None
    high: float | None
    graphs: Count


@dataclass(frozen=True)
class Teacher:
    """The ensemble from which the models were distilled, if there was one."""

    name: str  # name of the ensemble's recipe
    scores: dict[str, Score]  # {collection: out-of-fold score}
    gain: Score  # mean over collections of the models' score minus the teacher's


@dataclass(frozen=True)
class BundleRecord:
    """The contents of bundle.json: the models, their training, their scores and the files."""

    name: str
    recipe: Recipe
    features: int  # version of the graph preparation
    code: str  # fingerprint of the code that trained the models
    commit: str | None
    versions: dict[str, str]  # versions of the libraries used in training
    members: Annotated[tuple[Member, ...], Field(max_length=MAX_MEMBERS)]
    programs: dict[  # {collection: programs that the models for this collection learned from}
        str, Annotated[tuple[Program, ...], Field(max_length=MAX_PROGRAMS)]
    ]
    scores: dict[str, Score]  # {collection: out-of-fold score}
    families: dict[str, dict[str, Score]]  # {collection: {family: out-of-fold score}}
    # True if the models learned from all graphs; `scores` are then of other models, which left out
    # a fold each
    refitted: bool
    teacher: Teacher | None  # None: the models were not distilled
    files: dict[FileName, str]  # {file: its size and SHA-256}
    sizes: dict[FileName, Count]  # {file: its bytes}
    caveat: str = ""  # why the scores are too high, if they are
    # sources of the training runtimes (solution.domain.graph); in older bundles all were measured
    label_sources: tuple[str, ...] = (TIMED,)
    # which graphs always share a fold (solution.training.folds); older bundles do not say it
    scheme: Literal["family", "architecture", "graph"] = "architecture"

    def collections(self) -> list[str]:
        """Return the collections that at least one of the models ranks."""
        return sorted({name for member in self.members for name in member.collections})

    @property
    def is_light(self) -> bool:
        """Return True if the models predict without torch, as students do."""
        return self.teacher is not None


def write_bundle_record(record: BundleRecord, folder: Path) -> None:
    """Write the record with its checksum into the folder, after all other files."""
    described = dataclasses.asdict(record)
    described["recipe"] = record.recipe.model_dump(mode="json")
    write_sealed({"format": FORMAT, **described}, folder / RECORD)


def read_bundle_record(folder: Path, named: Path) -> BundleRecord:
    """Return the record in `folder`. Raises InputError if it is damaged or unusable; the message
    calls the bundle `named`."""
    path = folder / RECORD
    if not path.is_file():
        raise InputError(f"{named}: there is no bundle here. Make one with `fastslow pack RUN`.")
    found = read_record(path, "a bundle")
    if found.pop("format", None) != FORMAT:
        raise InputError(f"{named}: is of another format, expected {FORMAT}. Pack the run again.")
    strayed = found.pop("explored", None)
    try:
        record = TypeAdapter(BundleRecord).validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{named}: expected the record of a bundle, but {where[:100]}: {first['msg']}"
        ) from error
    _check(record, named)
    return record if not strayed else _forget_steps(record)


def _forget_steps(record: BundleRecord) -> BundleRecord:
    """Return the record without the programs' steps. Earlier code computed the steps in its bundles
    from another order of configurations than the ranking's, so they cannot be used."""
    programs = {
        name: tuple(dataclasses.replace(program, steps=()) for program in graphs)
        for name, graphs in record.programs.items()
    }
    return dataclasses.replace(record, programs=programs)


def hash_name(*words: str) -> str:
    """Return a hash of the name, which reveals it only to those who know the name already."""
    return hashlib.sha256(":".join(words).encode()).hexdigest()[:16]


def check_model_record(found: dict[str, Any], folder: str, named: Path) -> None:
    """Raise InputError for an unknown kind of model, a student with too large layers, or another
    version of the features. Call it before any library is imported for the model. `folder` and
    `named`: the model's folder and the bundle, for messages."""
    kind = found.get("kind")
    if kind not in catalogue.KINDS:
        raise InputError(
            f"{named}: {folder} is of the kind {kind!r}, expected one of "
            f"{', '.join(catalogue.KINDS)}."
        )
    if kind in STUDENTS:
        _check_sizes(found.get("settings"), folder, named)
    preparation = found.get("preparation")
    version = preparation.get("version") if isinstance(preparation, dict) else None
    if version != VERSION:
        raise InputError(_other_features(named, version))


def _check_sizes(settings: object, folder: str, named: Path) -> None:
    """Raise InputError if a student's settings exceed MAX_WIDTH, MAX_DEPTH or limits in SIZES."""
    for name, most in SIZES.items():
        given = settings.get(name, 0) if isinstance(settings, dict) else settings
        numbers = given if isinstance(given, list) else [given]
        most_of_each = MAX_WIDTH if isinstance(given, list) else most
        is_number = [type(number) is int and 0 <= number <= most_of_each for number in numbers]
        if len(numbers) > MAX_DEPTH or not all(is_number):
            raise InputError(
                f"{named}: {folder} has the setting {name} = {str(given)[:100]}, expected a number "
                f"from 0 to {most_of_each:,}, or at most {MAX_DEPTH} of them."
            )


def check_places(folder: Path, record: BundleRecord, source: Path) -> None:
    """Raise InputError if the bundle has links, files that do not have their recorded size, or
    unknown files below MODELS."""
    real = folder.resolve()
    for name in (RECORD, *record.sizes):
        path = folder / name
        if path.exists() and path.resolve() != real / name:
            raise InputError(f"{source}: {name} is a link, or leads out of the bundle.")
        size = record.sizes.get(name)
        if size is not None and path.is_file() and path.stat().st_size != size:
            raise InputError(
                f"{source}: {name} has {path.stat().st_size:,} bytes, expected {size:,}."
            )
    for path in sorted((folder / MODELS).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or (not path.is_dir() and name not in record.files):
            raise InputError(f"{source}: {name} is a link, or not in the bundle's record.")


def _check(record: BundleRecord, named: Path) -> None:
    """Raise InputError if entries of the record contradict each other or this program."""
    if record.features != VERSION:
        raise InputError(_other_features(named, record.features))
    if not all(is_source(source) for source in record.label_sources):
        raise InputError(f"{named}: names an unknown source of labels.")
    if set(record.files) != set(record.sizes):
        raise InputError(f"{named}: its record gives files without a size, or sizes of none.")
    total = sum(record.sizes.values())
    if total > MAX_BYTES:
        raise InputError(
            f"{named}: says that it holds {total:,} bytes, expected at most {MAX_BYTES:,}."
        )
    for member in record.members:
        model = f"{member.folder}/{catalogue.RECORD}"
        if not member.folder.startswith(f"{MODELS}/") or model not in record.files:
            raise InputError(f"{named}: names the model {member.folder!r}, which it does not hold.")
        if unknown := sorted(set(member.collections) - set(NAMES)):
            raise InputError(f"{named}: has a model of {unknown[0]!r}, which is no collection.")
    if len({member.folder for member in record.members}) < len(record.members):
        raise InputError(f"{named}: names a model twice.")
    for program in (program for programs in record.programs.values() for program in programs):
        if program.steps and program.steps[-1][1] != 0:
            raise InputError(f"{named}: says of a program that its best was never measured.")
        counts, slowdowns = [k for k, _ in program.steps], [slow for _, slow in program.steps]
        if counts != sorted(set(counts)) or slowdowns != sorted(slowdowns, reverse=True):
            raise InputError(f"{named}: says of a program that measuring more made it slower.")


def _other_features(named: Path, version: object) -> str:
    return (
        f"{named}: was made with version {version} of the features, this program has {VERSION}. "
        "Take the program it was packed with, or train and pack it again."
    )
