"""What the folder of a job says of itself: whose model it is, and what was written.

fold-F-seed-S/
    model/                          the trained model (solution.models.catalogue)
    out_of_fold.parquet             what it predicts of the graphs that it has not seen
    test.parquet                    what it predicts of the test graphs
    job.json                        this record, sealed, with the checksums of the others
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
NO_FOLD = -1  # of a model that leaves out no fold
MODEL = "model"  # the folder of the model in that of its job


@dataclass(frozen=True)
class JobRecord:
    """A trained model of a run, and how it came to be."""

    experiment: Annotated[str, AfterValidator(check_name)]
    source: str  # a hash of the experiment's file
    collections: tuple[str, ...]  # that it ranks
    learned_from: tuple[str, ...]  # the collections that it learned from
    fold: int  # that it has not seen
    seed: int
    versions: dict[str, str]  # of the libraries that it was trained with
    seconds: float
    peak_megabytes: float
    fitted_on: list[str]  # COLLECTION:GRAPH
    validated_on: list[str]
    curve: list[tuple[int, float]]  # step, validation score
    files: dict[str, str]  # checksums
    # Losses and accuracies at the steps of the curve, by name. Records of before have none.
    measures: dict[str, list[float]] = field(default_factory=dict)
    volatility: float | None = None  # the deviation of the last ten validation scores

    def fits(self) -> list[slice]:
        """The parts of the curve, one for each model that the ranker fitted after another.

        A model that is fitted next starts again at a low step.
        """
        steps = [step for step, _ in self.curve]
        later = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
        return [slice(*ends) for ends in pairwise([0, *later, len(steps)]) if steps]


def write_job(record: JobRecord, folder: Path) -> None:
    """Write the record of all that is in the folder, last."""
    sealed = dataclasses.replace(record, files=list_checksums(folder, leave_out=[RECORD]))
    write_sealed(dataclasses.asdict(sealed), folder / RECORD)


def read_job(folder: Path) -> JobRecord:
    """The record of a job; InputError where it is not what was written."""
    path = folder / RECORD
    try:
        return _adapter().validate_python(read_record(path, "a trained model"))
    except ValidationError as error:
        raise InputError(f"{path}: expected the record of a trained model, but: {error}") from error


def read_trained(folder: Path) -> JobRecord:
    """As read_job, for those who train nothing: the message says who makes it anew."""
    try:
        return read_job(folder)
    except InputError as error:
        raise InputError(
            f"{error} The `fastslow run` that began the run makes it again."
        ) from error


@cache
def _adapter() -> TypeAdapter[JobRecord]:  # to make one takes longer than to read the file
    return TypeAdapter(JobRecord)


def check_job(folder: Path) -> JobRecord:
    """The record of a job whose files are what was written; InputError where one is not."""
    record = read_job(folder)
    check_files(folder, record.files, folder / RECORD)
    return record
