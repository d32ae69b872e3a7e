"""Call the kaggle CLI for kernels and datasets.

The CLI exits with 0 after most failures of these commands, so only its success message counts.
"""

import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from submissions import failures
from submissions.calls import Calls, find_json
from submissions.credentials import find_username

REFUSED = failures.FailureKind(
    "refused",
    "Kaggle refuses it, or the name does not exist",
    "Check that it belongs to the user of the credentials. For the data of a competition, its "
    "rules must be accepted; for a GPU or the internet, the account's phone number confirmed.",
)
NOT_TAKEN = failures.FailureKind(
    "not taken",
    "Kaggle did not accept it",
    "Do what Kaggle asks for, then run the same command again.",
)
UPLOAD_FAILED = failures.FailureKind(
    "upload failed",
    "some files could not be uploaded",
    "Run the same command again.",
    passing=True,
)
PAGE = 200
# pattern of names that stay inside the target folder; the CLI would write to any path
INSIDE = r"^(?!/)(?!(.*/)?\.\.(/|$))[^\\]+$"
RUNNING, FAILED = ("QUEUED", "RUNNING", "NEW_SCRIPT"), ("ERROR", "CANCEL")


class DatasetStatus(BaseModel):
    """Kaggle's status of a dataset."""

    status: str = ""
    current_version_number: int | None = None

    @property
    def version(self) -> int:
        return self.current_version_number or 0


class KernelSession(BaseModel):
    """Kaggle's status of a kernel's latest session, whichever version of the kernel it runs."""

    status: str  # QUEUED, RUNNING, COMPLETE, ERROR, CANCEL_REQUESTED, CANCEL_ACKNOWLEDGED, ...
    failure: str = ""

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def has_failed(self) -> bool:
        return self.status.startswith(FAILED)


class Kernels(Calls):
    """Calls of the CLI for the user's kernels and datasets."""

    def find_user(self) -> str:
        """Return the name of the user whose credentials are used."""
        known = find_username()
        if known:
            return known
        doing = "asking who the user is"
        printed = self.insist(lambda: self.run(doing, ["config", "view"]))
        found = re.search(r"^- username: (\S+)$", printed, re.MULTILINE)
        if found is None or found.group(1) == "None":
            raise self.explain(failures.NO_CREDENTIALS, doing, "")
        return found.group(1)

    def find_dataset(self, name: str) -> DatasetStatus | None:
        """Return a dataset's status and newest version; None if the user has no such dataset."""
        doing = f"looking for the dataset {name}"

        def ask() -> DatasetStatus | None:
            try:
                printed = self.run(doing, ["datasets", "status", name, "--format", "json"])
            except failures.KaggleError as error:
                # Kaggle refuses access also if the dataset does not exist
                if error.kind is REFUSED:
                    return None
                raise
            return self.parse(DatasetStatus, find_json(printed, "{"), doing)

        return self.insist(ask)

    def upload_dataset(self, folder: Path, name: str, note: str, *, is_there: bool) -> None:
        """Upload the folder as a new dataset or, if the dataset exists (`is_there`), as its new
        version with the message `note`. Kaggle processes it later."""
        doing = f"uploading the dataset {name}"
        action = ["version", "-m", note] if is_there else ["create"]
        # without -q, which would hide failed uploads
        command = ["datasets", *action, "-p", str(folder)]
        printed = self.run(doing, command, self.settings.upload_seconds)
        failed = re.search(r"Upload unsuccessful.*$", printed, re.MULTILINE)
        if failed:
            raise self.explain(UPLOAD_FAILED, doing, failed.group(0))
        self._check(printed, r"is being created", r"creation error", doing)

    def push(self, folder: Path) -> int:
        """Upload the kernel in `folder`, which starts it. Returns the number of its version; 0 if
        Kaggle does not tell it."""
        doing = "pushing the notebook"
        command = ["kernels", "push", "-p", str(folder)]
        printed = self.run(doing, command, self.settings.upload_seconds)
        refused = r"Kernel push error|not valid (dataset|competition|kernel) sources"
        self._check(printed, r"successfully pushed", refused, doing)
        found = re.search(r"Kernel version (\d+)", printed)
        return int(found.group(1)) if found else 0

    def fetch_source(self, name: str, folder: Path) -> str:
        """Return the source of the kernel's newest version; empty if there is no such kernel."""
        doing, file = f"looking at the source of {name}", folder / "source"
        # The target is an existing file: in a folder, Kaggle's answer would choose the file's name.
        file.touch()
        try:
            self.insist(lambda: self.run(doing, ["kernels", "pull", name, "-p", str(file)]))
        except failures.KaggleError as error:
            if error.kind is REFUSED:
                return ""
            raise
        return file.read_text(encoding="utf-8")

    def find_session(self, name: str) -> KernelSession:
        """Return the latest session of the kernel."""
        doing = f"asking for the status of {name}"

        def ask() -> KernelSession:
            printed = self.run(doing, ["kernels", "status", name])
            found = re.search(r'has status "(?:KernelWorkerStatus\.)?(\w+)"', printed)
            if found is None:
                raise self.explain(failures.BAD_REPLY, doing, printed)
            failure = re.search(r'^Failure message: "(.*)"$', printed, re.MULTILINE | re.DOTALL)
            return KernelSession(status=found.group(1), failure=failure.group(1) if failure else "")

        return self.insist(ask)

    def download_output(
        self, name: str, folder: Path, pattern: str = "", report: Callable[[], None] | None = None
    ) -> None:
        """Download the log and the outputs whose names match `pattern` (empty: all) of the latest
        session; existing files are kept. The CLI saves an error page from the server as if it were
        the file. The checksums in kernel.json reveal such files: see solution.sessions.record."""
        command = ["kernels", "output", name, "-p", str(folder), "-q", "--page-size", str(PAGE)]
        command += ["--file-pattern", pattern or INSIDE]
        limit = self.settings.download_seconds
        self.insist(lambda: self.run("downloading outputs", command, limit, report))

    def explain(
        self, kind: failures.FailureKind, doing: str, printed: str, seconds: float = 0
    ) -> failures.KaggleError:
        if kind.name in ("403", "404", "rules") or re.search(r"Cannot access kernel", printed):
            return failures.explain_failure(REFUSED, doing, printed)
        return super().explain(kind, doing, printed, seconds)

    def _check(self, printed: str, success: str, refusal: str, doing: str) -> None:
        """Raise KaggleError if `printed` matches `refusal`, or does not match `success`."""
        refused = re.search(rf"^.*(?:{refusal}).*$", printed, re.MULTILINE)
        if refused:
            raise self.explain(NOT_TAKEN, doing, refused.group(0))
        if not re.search(success, printed):
            kind = failures.tell_failure(printed)
            raise self.explain(
                failures.BAD_REPLY if kind is failures.UNKNOWN else kind, doing, printed
            )
