"""Read and write job.json, the record of a trained model, with checksums of its files.

fold-F-seed-S/
    model/                          the trained model (solution.models.catalogue)
    out_of_fold.parquet             its predictions for the graphs of the held-out fold
    test.parquet                    its predictions for the test graphs
    job.json                        the record, with checksums of the other files and of itself
"""

import dataclasses
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError

from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.names import check_name
from solution.system.sealing import check_files, list_checksums, read_record

RECORD = "job.json"
NO_FOLD = -1  # the fold of a model that is trained on all folds
MODEL = "model"  # subfolder of the job's folder


@dataclass(frozen=True)
class JobRecord:
    """A trained model of a run, and how it was trained."""

    experiment: Annotated[str, AfterValidator(check_name)]
    source: str  # a hash of the experiment's file
    collections: tuple[str, ...]  # the collections that the model ranks
    learned_from: tuple[str, ...]  # the collections that the model was trained on
    fold: int  # the held-out fold, or NO_FOLD
    seed: int
    versions: dict[str, str]  # versions of the libraries at training time
    seconds: float
    peak_megabytes: float
    fitted_on: list[str]  # graphs that the model was fitted on, as COLLECTION:GRAPH
    validated_on: list[str]
    # (step, validation score) at each report of the training; the curves of all fits joined
    curve: list[tuple[int, float]]
    # checksums of the job's files, by path
    files: dict[str, str]
    # values of losses and accuracies at the steps of `curve`, by name; missing in older records
    measures: dict[str, list[float]] = field(default_factory=dict)
    volatility: float | None = None  # standard deviation of the last ten validation scores

    def fits(self) -> list[slice]:
        """Return each fitted model's slice of `curve`, in order of fitting."""
        # Each fit restarts the step count, so a new slice begins where the step does not increase.
        steps = [step for step, _ in self.curve]
        later = [i for i in range(1, len(steps)) if steps[i] <= steps[i - 1]]
        return [slice(*ends) for ends in pairwise([0, *later, len(steps)]) if steps]


def write_job(record: JobRecord, folder: Path) -> None:
    """Write the record with the checksums of all files in the folder; call it last."""
    sealed = dataclasses.replace(record, files=list_checksums(folder, leave_out=[RECORD]))
    write_sealed(dataclasses.asdict(sealed), folder / RECORD)


def read_job(folder: Path) -> JobRecord:
    """Return the record of a job; raise InputError if it is missing or damaged."""
    path = folder / RECORD
    try:
        return _adapter().validate_python(read_record(path, "a trained model"))
    except ValidationError as error:
        raise InputError(f"{path}: expected the record of a trained model, but: {error}") from error


def read_trained(folder: Path) -> JobRecord:
    """Return the record of a job. If the record is missing or damaged, the InputError says how to
    train the model again."""
    try:
        return read_job(folder)
    except InputError as error:
        raise InputError(
            f"{error} The `fastslow run` that began the run makes it again."
        ) from error


@cache
def _adapter() -> TypeAdapter[JobRecord]:  # cached: creating it takes longer than reading the file
    return TypeAdapter(JobRecord)


def check_job(folder: Path) -> JobRecord:
    """Return the record of a job; raise InputError if it or a file of the job is damaged."""
    record = read_job(folder)
    check_files(folder, record.files, folder / RECORD)
    return record
