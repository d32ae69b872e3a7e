"""Read and write records of pushes: runs/kernels/NOTEBOOK.json, updated at each step of a push.

The states of a push, which uploads a notebook to Kaggle and starts it:

pushing   written before the push: not known yet whether it arrived
failed    it did not arrive, or Kaggle rejected it
pushed    Kaggle has it
pulled    its outputs were downloaded
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, ValidationError

from solution.runs.folder import find_runs
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from solution.system.names import check_name
from submissions.calls import WaitSettings, wait_for_lock

Model = TypeVar("Model", bound=BaseModel)
ADDRESS = r"^\w[\w-]*/\w[\w-]*$"
State = Literal["pushing", "failed", "pushed", "pulled"]


class Push(BaseModel):
    """One push of a notebook."""

    key: Annotated[str, AfterValidator(check_name)]  # unique name of the push, part of folder names
    kernel: str = Field(pattern=ADDRESS)  # USER/SLUG
    commit: str
    when: str  # time of the push: UTC, ISO 8601
    values: dict[str, str | int | FiniteFloat | bool]  # parameters that were set
    resumes: bool  # the notebook's earlier output is one of its inputs
    dataset: str  # USER/SLUG of the dataset with the project's wheels
    dataset_version: int
    bundle: str = ""  # OWNER/SLUG of the dataset with the attached bundle; empty: none
    version: int = 0  # number of the kernel's version at Kaggle; 0 if it is not known
    state: State = "pushing"
    note: str = ""

    @property
    def ordered(self) -> tuple[Any, ...]:
        """The push's request: commit, parameters, whether it resumes, bundle."""
        return self.commit, self.values, self.resumes, self.bundle

    @property
    def url(self) -> str:
        return f"https://www.kaggle.com/code/{self.kernel}"


class Uploaded(BaseModel):
    """The record of the last upload of the project's wheels."""

    name: str
    commit: str
    python: str
    version: int


class Pushes(BaseModel):
    """All pushes of a notebook, the newest last."""

    pushes: list[Push] = []

    @property
    def latest(self) -> Push | None:
        return self.pushes[-1] if self.pushes else None

    @property
    def arrived(self) -> Push | None:
        """Return the newest push that Kaggle has."""
        found = [push for push in self.pushes if push.state in ("pushed", "pulled")]
        return found[-1] if found else None

    def put(self, push: Push) -> None:
        """Add the push, or replace the push with the same key."""
        self.pushes = [*(other for other in self.pushes if other.key != push.key), push]


def records() -> Path:
    """Return the folder of the records."""
    return find_runs() / "kernels"


def lock_records(settings: WaitSettings) -> AbstractContextManager[int]:
    """Hold the lock for changing the records; yield the lock file's descriptor."""
    lock = records() / ".pushing.lock"
    return wait_for_lock(lock, settings.lock_seconds, "is pushing or pulling")


def read_pushes(notebook: str) -> Pushes:
    """Return the pushes of the notebook; there may be none."""
    return read_push_record(Pushes, records() / f"{notebook}.json") or Pushes()


def record(notebook: str, push: Push) -> Push:
    """Write the push into its notebook's file and return it."""
    pushes = read_pushes(notebook)
    pushes.put(push)
    write_push_record(pushes, records() / f"{notebook}.json")
    return push


def read_push_record(kind: type[Model], path: Path) -> Model | None:
    """Read the record at `path`; None if there is none, InputError if it is not valid."""
    if not path.exists() and not path.is_symlink():
        return None
    try:
        return kind.model_validate(read_sealed(path, "a record of a push"))
    except (InputError, ValidationError) as error:
        raise InputError(
            f"{path}: expected a record of a push, found something else. Delete it; this does not "
            "affect notebooks that run on Kaggle."
        ) from error


def write_push_record(value: BaseModel, path: Path) -> None:
    """Write the record with its checksum."""
    write_sealed(value.model_dump(), path)
