"""The calls of the kaggle CLI that kernels and their dataset need.

The CLI exits with 0 after most of their failures, so only its words of success count.
"""

import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from submissions.calls import Calls, find_json
from submissions.credentials import find_username
from submissions.failures import (
    BAD_REPLY,
    NO_CREDENTIALS,
    UNKNOWN,
    KaggleError,
    Kind,
    explain,
    tell,
)

REFUSED = Kind(
    "refused",
    "Kaggle refuses, or there is no such thing under this name",
    "Check that it belongs to the user of the credentials. For the data of a competition, its "
    "rules must be accepted; for a GPU or the internet, the account's phone number confirmed.",
)
NOT_TAKEN = Kind(
    "not taken",
    "Kaggle did not take it",
    "Do what Kaggle asks for, then run the same command again.",
)
UPLOAD_FAILED = Kind(
    "upload failed",
    "some files could not be uploaded",
    "Run the same command again.",
    passing=True,
)
PAGE = 200
MOST_OF_OUTPUTS = 24 << 30  # bytes; Kaggle keeps 20 GB of a session
# Names of outputs that stay in their folder: the CLI writes wherever the name of a file leads.
INSIDE = r"^(?!/)(?!(.*/)?\.\.(/|$))[^\\]+$"
RUNNING, FAILED = ("QUEUED", "RUNNING", "NEW_SCRIPT"), ("ERROR", "CANCEL")


class DatasetStatus(BaseModel):
    """What Kaggle says of a dataset."""

    status: str = ""
    current_version_number: int | None = None

    @property
    def version(self) -> int:
        return self.current_version_number or 0


class Session(BaseModel):
    """What Kaggle says of the latest session of a kernel, whichever version that is of."""

    status: str  # QUEUED, RUNNING, COMPLETE, ERROR, CANCEL_REQUESTED, CANCEL_ACKNOWLEDGED, ...
    failure: str = ""

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def has_failed(self) -> bool:
        return self.status.startswith(FAILED)


class Kernels(Calls):
    """The user's kernels and datasets, as the CLI shows them."""

    def find_user(self) -> str:
        """The name of the user whose credentials are used."""
        known = find_username()
        if known:
            return known
        doing = "asking who the user is"
        printed = self.insist(lambda: self.run(doing, ["config", "view"]))
        found = re.search(r"^- username: (\S+)$", printed, re.MULTILINE)
        if found is None or found.group(1) == "None":
            raise self.explain(NO_CREDENTIALS, doing, "")
        return found.group(1)

    def find_dataset(self, name: str) -> DatasetStatus | None:
        """Its status and its newest version; None where the user has no such dataset."""
        doing = f"looking for the dataset {name}"

        def ask() -> DatasetStatus | None:
            try:
                printed = self.run(doing, ["datasets", "status", name, "--format", "json"])
            except KaggleError as error:
                if error.kind is REFUSED:  # Kaggle says so of what is not there, too
                    return None
                raise
            found: DatasetStatus = self.parse(DatasetStatus, find_json(printed, "{"), doing)
            return found

        return self.insist(ask)

    def upload_dataset(self, folder: Path, name: str, note: str, *, is_there: bool) -> None:
        """Create the dataset, or a new version of it; it is ready only later."""
        doing = f"uploading the dataset {name}"
        action = ["version", "-m", note] if is_there else ["create"]
        command = ["datasets", *action, "-p", str(folder)]  # -q would hide failed uploads
        printed = self.run(doing, command, self.settings.upload_seconds)
        failed = re.search(r"Upload unsuccessful.*$", printed, re.MULTILINE)
        if failed:
            raise self.explain(UPLOAD_FAILED, doing, failed.group(0))
        self._check(printed, r"is being created", r"creation error", doing)

    def push(self, folder: Path) -> int:
        """Save the kernel and start it; returns the number of its version."""
        doing = "pushing the notebook"
        command = ["kernels", "push", "-p", str(folder)]
        printed = self.run(doing, command, self.settings.upload_seconds)
        refused = r"Kernel push error|not valid (dataset|competition|kernel) sources"
        self._check(printed, r"successfully pushed", refused, doing)
        found = re.search(r"Kernel version (\d+)", printed)
        return int(found.group(1)) if found else 0

    def fetch_source(self, name: str, folder: Path) -> str:
        """The source of the newest version; empty where the user has no such kernel."""
        doing, file = f"looking at the source of {name}", folder / "source"
        file.touch()  # into a folder the CLI writes by the name that it is sent
        try:
            self.insist(lambda: self.run(doing, ["kernels", "pull", name, "-p", str(file)]))
        except KaggleError as error:
            if error.kind is REFUSED:
                return ""
            raise
        return file.read_text(encoding="utf-8")

    def find_session(self, name: str) -> Session:
        """The latest session of the kernel."""
        doing = f"asking for the status of {name}"

        def ask() -> Session:
            printed = self.run(doing, ["kernels", "status", name])
            found = re.search(r'has status "(?:KernelWorkerStatus\.)?(\w+)"', printed)
            if found is None:
                raise self.explain(BAD_REPLY, doing, printed)
            failure = re.search(r'^Failure message: "(.*)"$', printed, re.MULTILINE | re.DOTALL)
            return Session(status=found.group(1), failure=failure.group(1) if failure else "")

        return self.insist(ask)

    def download_output(
        self, name: str, folder: Path, pattern: str = "", report: Callable[[], None] | None = None
    ) -> None:
        """Download the outputs of the latest session, and its log; files that are there stay.

        What is sent is saved as it is, be it a page with an error: see solution.sessions.record.
        """
        command = ["kernels", "output", name, "-p", str(folder), "-q", "--page-size", str(PAGE)]
        command += ["--file-pattern", pattern or INSIDE]
        limit = self.settings.download_seconds
        bounds = {"memory": MOST_OF_OUTPUTS, "file": MOST_OF_OUTPUTS}  # it keeps a file whole
        self.insist(lambda: self.run("downloading outputs", command, limit, report, **bounds))

    def explain(self, kind: Kind, doing: str, printed: str, seconds: float = 0) -> KaggleError:
        if kind.name in ("403", "404", "rules") or re.search(r"Cannot access kernel", printed):
            return explain(REFUSED, doing, printed)
        return super().explain(kind, doing, printed, seconds)

    def _check(self, printed: str, success: str, refusal: str, doing: str) -> None:
        """Raise KaggleError where the words of success are missing, or those of a refusal there."""
        refused = re.search(rf"^.*(?:{refusal}).*$", printed, re.MULTILINE)
        if refused:
            raise self.explain(NOT_TAKEN, doing, refused.group(0))
        if not re.search(success, printed):
            kind = tell(printed)
            raise self.explain(BAD_REPLY if kind is UNKNOWN else kind, doing, printed)
